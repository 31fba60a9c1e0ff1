"""Run by test_realm.py with Transformers 4.57.6, the last one that has REALM.

    python realm_oracle.py CONFIG.json ARRAYS.npz OUT.npz

Writes random models, the vectors of texts, the loss of masked tokens over passages, and the scores of spans.
"""

import json
import os
import sys

import numpy as np


def main(config: str, arrays: str, out: str) -> None:
    os.environ["TRUST_REMOTE_CODE"] = "1"
    import torch
    from transformers.models.deprecated.realm.configuration_realm import RealmConfig
    from transformers.models.deprecated.realm.modeling_realm import RealmEmbedder, RealmKnowledgeAugEncoder, RealmReader

    torch.manual_seed(0)
    with open(config) as file:
        config = RealmConfig(**json.load(file))
    given = {name: torch.tensor(value) for name, value in np.load(arrays).items()}
    found = {}
    models = {
        "embedder": RealmEmbedder(config),
        "encoder": RealmKnowledgeAugEncoder(config),
        "reader": RealmReader(config),
    }
    for model in models.values():
        model.eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    embedder = models["embedder"]
    found["vectors"] = embedder(given["texts"], attention_mask=given["texts_valid"]).projected_score
    joint = {name: given[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    loss = models["encoder"](
        **{name: value[None] for name, value in joint.items()},
        relevance_score=given["scores"][None],
        labels=given["labels"][None],
        mlm_mask=given["mlm_mask"][None],
    ).loss
    loss.backward()
    found["loss"] = loss
    reader = models["reader"]
    outputs = reader(
        **joint,
        relevance_score=given["scores"],
        block_mask=given["block_mask"],
        start_positions=given["starts"],
        end_positions=given["ends"],
        has_answers=given["has_answers"],
    )
    outputs.reader_loss.backward()
    found |= {"reader_loss": outputs.reader_loss, "retriever_loss": outputs.retriever_loss}
    hidden = reader.realm(**joint)[0]
    logits, found["candidate_starts"], found["candidate_ends"] = reader.qa_outputs(hidden, given["block_mask"])
    found["span_scores"] = logits
    results = {name: value.detach().numpy() for name, value in found.items()}
    for model_name, model in models.items():
        for name, parameter in model.named_parameters():
            results[f"parameter/{model_name}/{name}"] = parameter.detach().numpy()
            if parameter.grad is not None:
                results[f"gradient/{model_name}/{name}"] = parameter.grad.numpy()
    np.savez(out, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
