"""What chips and runs cost."""

import pytest

from t5x_lite.errors import InputError
from t5x_lite.parallel.chips import CHIPS
from t5x_lite.planning.prices import LIST_PRICES, SOURCE, find_price, run_cost


def test_list_prices_are_of_known_chips_and_say_where_they_are_from():
    assert set(LIST_PRICES) <= set(CHIPS)
    for chip, regions in LIST_PRICES.items():
        price = find_price("", chip)
        assert price.dollars == min(regions.values()), "the default is a region with the lowest price"
        assert next(iter(regions)) in price.what
        assert SOURCE in price.what
        for region, dollars in regions.items():
            assert find_price(region, chip).dollars == dollars


@pytest.mark.parametrize("given", ["1.2", "1.20", " 1.2"])
def test_a_number_overrides_the_list(given):
    for chip in CHIPS:
        price = find_price(given, chip)
        assert (price.dollars, price.what) == (1.2, "as given")


def test_without_a_list_price_there_is_none():
    assert "tpu7x" not in LIST_PRICES
    assert find_price("", "tpu7x") is None


@pytest.mark.parametrize(
    ("given", "chip", "expected"),
    [
        ("us-west4", "v5p", "price=us-west4 is not known for v5p; give a region of us-central1, us-east1"),
        ("us-central1", "tpu7x", "price=us-central1 is not known for tpu7x; give dollars of a chip for an hour"),
        ("0", "v5p", "price=0 is not a price"),
        ("-1", "v5p", "price=-1 is not a price"),
        ("nan", "v5p", "price=nan is not a price"),
        ("inf", "v5p", "price=inf is not a price"),
    ],
)
def test_what_is_no_price_is_refused(given, chip, expected):
    with pytest.raises(InputError, match=expected):
        find_price(given, chip)


def test_a_run_costs_in_proportion_to_its_steps_its_seconds_and_its_chips():
    price = find_price("2", "v5p")
    once = run_cost(1.5, 1000, 64, price)
    assert once.days == pytest.approx(1500 / 86_400)
    assert once.dollars == pytest.approx(2 * once.chip_hours) == pytest.approx(2 * 64 * 1500 / 3600)
    more = run_cost(3.0, 2000, 128, price)
    assert (more.days, more.chip_hours) == (pytest.approx(4 * once.days), pytest.approx(8 * once.chip_hours))
    assert run_cost(1.5, 1000, 64, None).dollars is None
