// The Python files that go with an exported model: python/hf, embedded when the program is built, so that whoever has
// the program alone can export.
#pragma once

#include <string_view>
#include <vector>

namespace some {

struct PythonFile {
  std::string_view name, text;
};
const std::vector<PythonFile>& python_files();

}  // namespace some
