// Names that other programs (nanoGPT, Hugging Face, PyTorch) give to the settings of a recipe. They are not accepted in
// recipes; they lead users to the right setting, in `some settings` and in error messages.
#pragma once

#include <string>
#include <string_view>

namespace some {

// Returns the full name of the setting that is commonly called `name`, "learning_rate" -> "train.lr"; "" if there is
// none. Case, leading dashes, '-' for '_', and a table in front ("train.batch_size") are ignored.
std::string setting_commonly_called(std::string_view name);

// Returns what to use instead of a common setting that does not exist here, "dropout"; "" for other names.
std::string instead_of_unsupported(std::string_view name);

}  // namespace some
