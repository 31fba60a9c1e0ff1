"""What is particular to one platform, each in one plain function: attention, products of matrices, sums of rows.

`kernels` alone asks which platform a program is for.
"""
