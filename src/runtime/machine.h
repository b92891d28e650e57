// Where is computed, and in what numbers, as users choose it: in recipes, on command lines, in calls from elsewhere.
// Words are read and written here and nowhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "tensor/device.h"

namespace some {

struct DeviceChoice {
  enum class Kind : std::uint8_t {
    automatic,  // the first GPU where there is one, otherwise the CPU
    cpu,
    cuda,
  };
  Kind kind = Kind::automatic;
  std::optional<int> index = std::nullopt;  // of a GPU that was chosen by its number
  bool operator==(const DeviceChoice&) const = default;
};
inline constexpr DeviceChoice on_cpu{DeviceChoice::Kind::cpu};

std::optional<DeviceChoice> find_device_choice(const std::string& name);  // "auto", "cpu", "cuda", "cuda:1"
DeviceChoice device_choice(const std::string& name);                      // bad_input for a name that is none
std::string text_of(const DeviceChoice& choice);
DeviceName choose_device(const DeviceChoice& choice);  // throws when there is no such GPU

enum class PrecisionChoice : std::uint8_t {
  automatic,  // bf16 on a GPU, fp32 on a CPU
  fp32,
  bf16,
  f64,
};
std::vector<std::string> precision_choices();                            // their names, in the order above
PrecisionChoice precision_choice(const std::string& name);               // bad_input for a name that is none
std::optional<PrecisionChoice> said_precision(const std::string& name);  // none where it is empty: nothing was said
Precision chosen_precision(PrecisionChoice choice, DeviceKind device);

}  // namespace some
