"""Run by test_transformer_xl.py with Transformers 4.57.6, the last one that has Transformer-XL.

    python transfo_xl_oracle.py IDS.npy FOLDER...

Reads `config.json` of each folder, and writes into `out.npz` there a random model, and of two segments its log
probabilities, memories, loss and gradients.
"""

import json
import os
import sys

import numpy as np
import torch


def main(ids: str, *folders: str) -> None:
    os.environ["TRUST_REMOTE_CODE"] = "1"
    from transformers.models.deprecated.transfo_xl.configuration_transfo_xl import TransfoXLConfig
    from transformers.models.deprecated.transfo_xl.modeling_transfo_xl import TransfoXLLMHeadModel

    # Version 4.57.6 calls type_as(dtype=...), which torch does not have.
    type_as = torch.Tensor.type_as
    torch.Tensor.type_as = lambda self, *others, dtype=None: self.to(dtype) if dtype else type_as(self, *others)
    for folder in folders:
        with open(f"{folder}/config.json") as file:
            model = TransfoXLLMHeadModel(TransfoXLConfig(**json.load(file))).eval()
        np.savez(f"{folder}/out.npz", **arrays_of(model, np.load(ids)))


def arrays_of(model, ids):
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ids, memory, found = torch.tensor(ids).long(), None, {}
    for number, segment in enumerate(ids.split(ids.shape[1] // 2, dim=1)):
        output = model(segment, mems=memory)
        memory = output.mems
        found[f"log_probabilities_{number}"] = output.prediction_scores
        found[f"memory_{number}"] = torch.stack([layer.transpose(0, 1) for layer in memory], dim=1)
    # Of the second segment, whose last token has no target here.
    before = [layer.transpose(0, 1) for layer in found["memory_0"].unbind(dim=1)]
    nll = model(segment, mems=before, labels=segment).losses
    found["loss"] = nll.sum()
    nll.sum().backward()
    arrays = {name: value.detach().numpy() for name, value in found.items()}
    for name, parameter in model.named_parameters():
        arrays[f"parameter/{name}"] = parameter.detach().numpy()
        arrays[f"gradient/{name}"] = np.zeros(1) if parameter.grad is None else parameter.grad.numpy()
    return arrays


if __name__ == "__main__":
    main(*sys.argv[1:])
