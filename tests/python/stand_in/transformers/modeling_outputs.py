from dataclasses import dataclass


@dataclass
class CausalLMOutputWithPast:
    loss: object = None
    logits: object = None
    past_key_values: object = None
