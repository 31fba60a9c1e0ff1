"""Scaling laws over one's own runs: Kaplan et al. 2020, Hoffmann et al. 2022."""

from t5x_lite.scaling.allocation import Allocation, fit_envelope, fit_profiles
from t5x_lite.scaling.fits import Fit, fit_law
from t5x_lite.scaling.laws import (
    ChinchillaLaw,
    ComputeLaw,
    DataLaw,
    FrontierLaw,
    KaplanLaw,
    Measurements,
    Optimum,
    SizeLaw,
)
from t5x_lite.scaling.measure import count_parameters, read_measurements, read_runs, read_table, training_flops
from t5x_lite.scaling.study import Extrapolation, Study, extrapolate, fit_study

__all__ = [
    "Allocation",
    "ChinchillaLaw",
    "ComputeLaw",
    "DataLaw",
    "Extrapolation",
    "Fit",
    "FrontierLaw",
    "KaplanLaw",
    "Measurements",
    "Optimum",
    "SizeLaw",
    "Study",
    "count_parameters",
    "extrapolate",
    "fit_envelope",
    "fit_law",
    "fit_profiles",
    "fit_study",
    "read_measurements",
    "read_runs",
    "read_table",
    "training_flops",
]
