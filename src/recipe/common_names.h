// Names that other programs (nanoGPT, Hugging Face, PyTorch) use for settings of a recipe. Recipes do not accept them;
// `some settings` and error messages use them to point to the right setting.
#pragma once

#include <string>
#include <string_view>

namespace some {

// Returns the full name of the setting that is commonly called `name`, "learning_rate" -> "train.lr"; "" if there is
// none. Ignores case, leading dashes, '-' for '_', and a leading table ("train.batch_size").
std::string setting_commonly_called(std::string_view name);

// Returns what to use instead of a common setting that does not exist here, such as "attention_dropout" or "optimizer";
// "" for other names.
std::string instead_of_unsupported(std::string_view name);

}  // namespace some
