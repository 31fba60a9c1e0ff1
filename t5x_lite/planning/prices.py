"""What a chip costs for an hour, and a whole run of steps."""

import math
from dataclasses import dataclass

from t5x_lite.errors import InputError

SOURCE = "Google's billing catalog, as SkyPilot's catalog v8 (commit 8427bbf) holds it, read 2026-11-25"
"""Where `LIST_PRICES` are from. Google shows them at https://cloud.google.com/tpu/pricing."""

_US_V5E = ("us-central1", "us-east1", "us-east4", "us-east5", "us-west1", "us-west4")
_US_V6E = ("us-central1", "us-east1", "us-east4", "us-east5", "us-south1", "us-west1")
LIST_PRICES: dict[str, dict[str, float]] = {
    "v4": {"us-central2": 3.22},
    "v5e": dict.fromkeys(_US_V5E, 1.20)
    | {"asia-east1": 1.38948, "asia-northeast1": 1.54104, "asia-southeast1": 1.56, "europe-north1": 1.32132}
    | {"europe-west1": 1.32132, "europe-west3": 1.416, "europe-west4": 1.56, "northamerica-northeast1": 1.32132}
    | {"southamerica-west1": 1.716, "us-south1": 1.416},
    "v5p": dict.fromkeys(("us-central1", "us-east1", "us-east5"), 4.20)
    | {"europe-west1": 4.459455, "europe-west4": 4.2525, "us-south1": 4.779},
    "v6e": dict.fromkeys(_US_V6E, 2.70)
    | {"asia-northeast1": 3.24, "asia-south1": 3.24, "asia-southeast1": 2.97, "europe-west4": 2.97}
    | {"southamerica-west1": 2.70},
}
"""US dollars of a chip for an hour on demand, by chip and region, its first region first. Spot machines cost less and
change from month to month, and tpu7x is not in the source: both are for the user to say."""


@dataclass(frozen=True)
class Price:
    """What a chip costs for an hour."""

    dollars: float
    what: str
    """Whose price it is, as people read it."""


@dataclass(frozen=True)
class RunCost:
    """What all steps of a run take; evaluation, checkpoints and restarts come on top."""

    days: float
    chip_hours: float
    dollars: float | None
    """None where no price is known."""


def find_price(given: str, chip: str) -> Price | None:
    """The price that the option `--price` stands for: a number of dollars, or the list price in a region.

    Without the option it is the list price in the chip's first region; None where none is known. Raises `InputError`
    for a number that is no price, and for a region without a list price of the chip.

    >>> find_price("1.2", "v5p").dollars, find_price("europe-west4", "v5p").dollars, find_price("", "v5p").dollars
    (1.2, 4.2525, 4.2)
    """
    listed = LIST_PRICES.get(chip, {})
    try:
        dollars = float(given)
    except ValueError:  # a region, or nothing
        region = given or next(iter(listed), "")
        if region in listed:
            return Price(listed[region], f"list price on demand in {region}; {SOURCE}")
        if not given:
            return None
        known = f"a region of {', '.join(listed)}, or dollars" if listed else "dollars"
        raise InputError(
            f"price={given} is not known for {chip}; give {known} of a chip for an hour, such as 1.2"
        ) from None
    if not 0 < dollars < math.inf:
        raise InputError(f"price={given} is not a price; give the dollars of a chip for an hour, more than 0")
    return Price(dollars, "as given")


def run_cost(seconds: float, steps: int, num_chips: int, price: Price | None) -> RunCost:
    """What a run takes: `steps` of so many seconds each, on so many chips.

    >>> run_cost(2.0, 43_200, 64, Price(4.25, "as given"))
    RunCost(days=1.0, chip_hours=1536.0, dollars=6528.0)
    """
    hours = seconds * steps / 3600
    chip_hours = hours * num_chips
    return RunCost(hours / 24, chip_hours, None if price is None else chip_hours * price.dollars)
