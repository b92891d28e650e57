// Device and precision as users choose them: in recipes, on command lines, in API calls. Their names are parsed and
// written only here.
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
    automatic,  // the first usable GPU, or the CPU if there is none
    cpu,
    cuda,
  };
  Kind kind = Kind::automatic;
  std::optional<int> index = std::nullopt;  // GPU number, if one was specified
  bool operator==(const DeviceChoice&) const = default;
};
inline constexpr DeviceChoice on_cpu{DeviceChoice::Kind::cpu};

std::optional<DeviceChoice> parse_device_choice(const std::string& name);  // "auto", "cpu", "cuda", "cuda:1"
DeviceChoice device_choice(const std::string& name);                       // bad_input for an unknown name
std::string text_of(const DeviceChoice& choice);
DeviceName choose_device(const DeviceChoice& choice);  // fails if the GPU does not exist or cannot be used

enum class PrecisionChoice : std::uint8_t {
  automatic,  // bf16 on a GPU, fp32 on a CPU
  fp32,
  bf16,
  f64,
};
std::vector<std::string> precision_choices();                                      // their names, in the order above
PrecisionChoice precision_choice(const std::string& name);                         // bad_input for an unknown name
std::optional<PrecisionChoice> parse_optional_precision(const std::string& name);  // empty if `name` is empty
Precision resolve_precision(PrecisionChoice choice, DeviceKind device);

}  // namespace some
