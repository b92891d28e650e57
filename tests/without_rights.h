// For tests of permissions, which root bypasses: drops root's rights until the end of the scope.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace some {

class WithoutRights {
 public:
  // Makes the user `nobody` own the folder and all that is in it.
  explicit WithoutRights(const std::string& folder) : superuser_(::geteuid() == 0) {
    if (!superuser_) return;
    works_ = ::chown(folder.c_str(), nobody, nobody) == 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      works_ = works_ && ::lchown(entry.path().c_str(), nobody, nobody) == 0;
    works_ = works_ && ::seteuid(nobody) == 0;
  }
  ~WithoutRights() {
    if (superuser_) static_cast<void>(::seteuid(0) == 0);
  }
  WithoutRights(const WithoutRights&) = delete;
  WithoutRights& operator=(const WithoutRights&) = delete;
  // Returns why permissions cannot be tested here, or an empty text: a container may not allow changing the user, or
  // `nobody` may not be able to read the `program`.
  std::string why_not(const std::string& program = "/") const {
    if (!works_) return "the superuser cannot become nobody here";
    return ::eaccess(program.c_str(), X_OK) == 0 ? "" : program + " is not for everybody";
  }

 private:
  static constexpr uid_t nobody = 65534;
  bool superuser_, works_ = true;
};

}  // namespace some
