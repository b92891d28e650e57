#include "runtime/machine.h"

#include <algorithm>

#include "core/error.h"

namespace some {
namespace {

const char* const automatic_name = "auto";

}  // namespace

std::optional<DeviceChoice> parse_device_choice(const std::string& name) {
  if (name == automatic_name) return DeviceChoice{};
  const auto device = parse_device_name(name);
  if (!device) return std::nullopt;
  if (device->kind == DeviceKind::cpu) return on_cpu;
  DeviceChoice choice{DeviceChoice::Kind::cuda};
  if (name.find(':') != std::string::npos) choice.index = device->index;
  return choice;
}

DeviceChoice device_choice(const std::string& name) {
  const auto choice = parse_device_choice(name);
  if (!choice)
    bad_input(Code::device_unknown,
              "unknown device \"{}\"; use \"cpu\", \"cuda\", \"cuda:N\" (GPU number N, from 0) or \"auto\"", name);
  return *choice;
}

std::string text_of(const DeviceChoice& choice) {
  switch (choice.kind) {
    case DeviceChoice::Kind::automatic: return automatic_name;
    case DeviceChoice::Kind::cpu: return "cpu";
    case DeviceChoice::Kind::cuda: break;
  }
  return choice.index ? fmt::format("cuda:{}", *choice.index) : "cuda";
}

DeviceName choose_device(const DeviceChoice& choice) {
  switch (choice.kind) {
    case DeviceChoice::Kind::automatic:
      return cuda::available() ? DeviceName{DeviceKind::cuda, cuda::first_usable_gpu()} : DeviceName{};
    case DeviceChoice::Kind::cpu: return {};
    case DeviceChoice::Kind::cuda: break;
  }
  const DeviceName device{DeviceKind::cuda, choice.index.value_or(0)};
  if (const std::string why = cuda::unusable_reason(device.index); !why.empty())
    failed(Code::device_unusable, "device \"{}\" cannot be used: {}", text_of(choice), why);
  return device;
}

DeviceName choose_device(const std::string& name) { return choose_device(device_choice(name)); }

std::vector<std::string> precision_choices() {
  return {automatic_name, name_of(Precision::fp32), name_of(Precision::bf16), name_of(Precision::f64)};
}

PrecisionChoice precision_choice(const std::string& name) {
  if (name == automatic_name) return PrecisionChoice::automatic;
  switch (parse_precision(name)) {
    case Precision::fp32: return PrecisionChoice::fp32;
    case Precision::bf16: return PrecisionChoice::bf16;
    case Precision::f64: break;
  }
  return PrecisionChoice::f64;
}

std::optional<PrecisionChoice> parse_optional_precision(const std::string& name) {
  return name.empty() ? std::nullopt : std::optional(precision_choice(name));
}

Precision resolve_precision(PrecisionChoice choice, DeviceKind device) {
  switch (choice) {
    case PrecisionChoice::automatic: return device == DeviceKind::cuda ? Precision::bf16 : Precision::fp32;
    case PrecisionChoice::fp32: return Precision::fp32;
    case PrecisionChoice::bf16: return Precision::bf16;
    case PrecisionChoice::f64: break;
  }
  return Precision::f64;
}

}  // namespace some
