// Parses the names of kernels: a short name that does not depend on namespaces, and the types of parameters.
#pragma once

#include <string>
#include <vector>

namespace fake_cuda {

struct KernelName {
  std::string name;                     // without return type, namespaces and parameters, with template arguments
  std::vector<std::string> parameters;  // types of the parameters
};

KernelName read_kernel_name(const char* mangled);

// Formats a parameter passed by value: a number, or "_" for a type whose size is not known from its name.
std::string value_of(const std::string& type, const void* argument);

}  // namespace fake_cuda
