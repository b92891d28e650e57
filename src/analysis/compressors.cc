#include "analysis/compressors.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/system_error.h"

namespace some {

namespace {

struct Compressor {
  const char* name;
  const char* package;
  std::array<const char*, 3> programs;  // the first one that is found on PATH
  const char* arguments;                // in a folder with the text in `in`; the result is `out`
};

constexpr Compressor compressors[] = {
    {"bzip2 -9", "bzip2", {"bzip2"}, "-9 -c in > out"},
    {"xz -9e", "xz-utils", {"xz"}, "-9e -c in > out"},
    {"brotli -q 11", "brotli", {"brotli"}, "-q 11 -w 24 -c in > out"},
    {"PPMd (7z)", "7zip", {"7zz", "7z", "7za"}, "a -bd -t7z -m0=PPMd:o=8:mem=256m out.7z in && mv out.7z out"},
    {"zpaq -m5", "zpaq", {"zpaq"}, "a out.zpaq in -m5 -t1 && mv out.zpaq out"},
};

class ScratchFolder {
 public:
  ScratchFolder() {
    path_ = (std::filesystem::temp_directory_path() / "some-sizes-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) failed(Code::folder_unwritable, "cannot make {}: {}", path_, last_reason());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::vector<CompressorSize> measure_compressors(std::string_view text) {
  const ScratchFolder folder;
  write_file_atomic(folder.path() + "/in", text);
  std::vector<CompressorSize> sizes;
  for (const Compressor& one : compressors) {
    CompressorSize size{one.name, one.package, {}};
    const std::string out = folder.path() + "/out";
    for (const char* program : one.programs) {
      if (program == nullptr) break;
      std::filesystem::remove(out);
      // The command line contains no user input except the folder for temporary files, which is passed as $1.
      const std::string line = fmt::format("cd \"$1\" && command -v {0} && {0} {1}", program, one.arguments);
      const std::string command =
          fmt::format("SOME_FOLDER='{}'; set -- \"$SOME_FOLDER\"; ( {} ) >/dev/null 2>&1", folder.path(), line);
      if (folder.path().find('\'') != std::string::npos || std::system(command.c_str()) != 0) continue;
      std::error_code unknown;
      const std::uintmax_t bytes = std::filesystem::file_size(out, unknown);
      if (unknown) continue;
      size.bytes = bytes;
      break;
    }
    sizes.push_back(std::move(size));
  }
  return sizes;
}

nlohmann::json to_json(const std::vector<CompressorSize>& sizes) {
  nlohmann::json list = nlohmann::json::array();
  for (const CompressorSize& size : sizes)
    list.push_back({{"name", size.name},
                    {"package", size.package},
                    {"bytes", size.bytes ? nlohmann::json(*size.bytes) : nlohmann::json()}});
  return list;
}

}  // namespace some
