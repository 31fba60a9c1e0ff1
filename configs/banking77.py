"""What a bank's customer wants, one of 77 intents (Casanueva et al. 2020): fine-tuning configs/gutenberg_bert.py.

    python -m t5x_lite train configs/banking77.py --start.folder runs/gutenberg_bert
    python -m t5x_lite evaluate runs/banking77 --out answers

train.csv and test.csv have the columns text and category.

Measured, three seeds: accuracy 60.2 % (58.3 to 62.8) from configs/gutenberg_bert.py, 66.4 % (45.7 to 78.7) from
random parameters; the difference is -6.3 points, its 95 % interval -20.5 to +16.7 (benchmarks/fine_tuning.py).
"""

from dataclasses import replace

from gutenberg_bert import fine_tuning

from t5x_lite.data import LabeledTexts, TableFiles
from t5x_lite.objectives import Classification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Evaluation

# fmt: off
LABELS = (
    "card_arrival", "card_linking", "exchange_rate", "card_payment_wrong_exchange_rate", "extra_charge_on_statement",
    "pending_cash_withdrawal", "fiat_currency_support", "card_delivery_estimate", "automatic_top_up",
    "card_not_working", "exchange_via_app", "lost_or_stolen_card", "age_limit", "pin_blocked",
    "contactless_not_working", "top_up_by_bank_transfer_charge", "pending_top_up", "cancel_transfer", "top_up_limits",
    "wrong_amount_of_cash_received", "card_payment_fee_charged", "transfer_not_received_by_recipient",
    "supported_cards_and_currencies", "getting_virtual_card", "card_acceptance", "top_up_reverted",
    "balance_not_updated_after_cheque_or_cash_deposit", "card_payment_not_recognised", "edit_personal_details",
    "why_verify_identity", "unable_to_verify_identity", "get_physical_card", "visa_or_mastercard",
    "topping_up_by_card", "disposable_card_limits", "compromised_card", "atm_support",
    "direct_debit_payment_not_recognised", "passcode_forgotten", "declined_cash_withdrawal", "pending_card_payment",
    "lost_or_stolen_phone", "request_refund", "declined_transfer", "Refund_not_showing_up", "declined_card_payment",
    "pending_transfer", "terminate_account", "card_swallowed", "transaction_charged_twice", "verify_source_of_funds",
    "transfer_timing", "reverted_card_payment?", "change_pin", "beneficiary_not_allowed", "transfer_fee_charged",
    "receiving_money", "failed_transfer", "transfer_into_account", "verify_top_up", "getting_spare_card",
    "top_up_by_cash_or_cheque", "order_physical_card", "virtual_card_not_working",
    "wrong_exchange_rate_for_cash_withdrawal", "get_disposable_virtual_card", "top_up_failed",
    "balance_not_updated_after_bank_transfer", "cash_withdrawal_not_recognised", "exchange_charge",
    "top_up_by_card_charge", "activate_my_card", "cash_withdrawal_charge", "card_about_to_expire",
    "apple_pay_or_google_pay", "verify_my_identity", "country_support",
)
# fmt: on


def queries(file: str) -> LabeledTexts:
    """The examples of a file."""
    return LabeledTexts(TableFiles((file,)), label="category", labels=LABELS)


experiment = replace(
    fine_tuning,
    model=replace(fine_tuning.model, heads=("classification",), num_classes=77),
    objective=Classification(input_length=64),
    data=replace(
        fine_tuning.data,
        source=queries("train.csv"),
        held_out_source=queries("test.csv"),
    ),
    optimizer=AdamW(LinearDecay(peak=5e-4, warmup_steps=120, total_steps=1201), clip_norm=1.0),
    steps=1200,
    evaluation=Evaluation(every=400, rows=4096),
)
