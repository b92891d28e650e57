"""The thin layer of an exported model that transformers sees, on a stand-in for that package (tests/python/stand_in): called
by tests/exchange/hf_test.cc with the export. Says on its last line which transformers it met."""

import sys

import torch

sys.path.insert(0, sys.argv[1])
import modeling_some  # noqa: E402
import transformers  # noqa: E402
from configuration_some import SomeConfig  # noqa: E402
from tensors_some import read_safetensors  # noqa: E402

plain = modeling_some.load(sys.argv[1])
config = SomeConfig.from_pretrained(sys.argv[1])
assert isinstance(config, transformers.PretrainedConfig) and config.auto_map["AutoConfig"] == "configuration_some.SomeConfig"
model = modeling_some.SomeForCausalLM(config)
model.load_state_dict(read_safetensors(sys.argv[1] + "/model.safetensors"))
model.eval()

rows = [[5, 6, 7, 8, 9, 10, 11], [12, 13, 14]]
longest = max(map(len, rows))
ids = torch.tensor([[config.pad_token_id] * (longest - len(row)) + row for row in rows])
mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
out = model(input_ids=ids, attention_mask=mask, return_dict=True)
for i, row in enumerate(rows):
    with torch.no_grad():
        apart = float((out.logits[i, -len(row):] - plain(torch.tensor([row]))[0]).abs().max())
    assert apart < 1e-5, apart

labels = torch.tensor([rows[0]])
loss = model(input_ids=labels, labels=labels).loss
wanted = torch.nn.functional.cross_entropy(plain(labels)[0, :-1], labels[0, 1:])
assert abs(float(loss - wanted)) < 1e-6
loss.backward()
assert model.embed.weight.grad is not None and model.get_input_embeddings() is model.embed

# A batch of padded prompts with a KV cache generates what each generates separately without one.
written = model.generate(ids, mask, 12)
for i, row in enumerate(rows):
    text = list(row)
    with torch.no_grad():
        for _ in range(12):
            text.append(int(plain(torch.tensor([text]))[0, -1].argmax()))
    assert written[i, -12 - len(row):].tolist() == text, (written[i].tolist(), text)
print("transformers:", getattr(transformers, "__version__", "the stand-in of the tests"))
