"""What is particular to one platform, behind one plain function each: attention, products of matrices, sums of rows.

`kernels` alone asks which platform a program is for.
"""
