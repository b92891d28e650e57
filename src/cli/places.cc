#include "cli/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/files/folders.h"
#include "recipe/schema.h"

namespace some {

namespace fs = std::filesystem;

std::vector<std::string> recipe_folders() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::string> found;
  for (const fs::path& place : {fs::path("recipes"), program / "recipes", program.parent_path() / "recipes",
                                program.parent_path() / "share/some/recipes"}) {
    if (!folder_exists(place.string())) continue;
    const std::string name = place.lexically_normal().string();
    if (std::find(found.begin(), found.end(), name) == found.end()) found.push_back(name);
  }
  return found;
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const std::string& folder : recipe_folders()) {
    for (const fs::path name : list_folder(folder)) {
      if (name.extension() == ".toml" && name.stem() != "index") names.push_back(name.stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string find_recipe(const std::string& name) {
  if (name.empty() || exists_path(name)) return name;
  if (exists_path(name + ".toml")) return name + ".toml";
  const bool bare = name.find('/') == std::string::npos;
  const std::string file = name.ends_with(".toml") ? name : name + ".toml";
  const std::vector<std::string> folders = recipe_folders();
  for (const std::string& folder : folders) {
    if (bare && exists_path((fs::path(folder) / file).string())) return (fs::path(folder) / file).string();
  }
  const std::string stem = fs::path(file).stem().string();
  const std::string meant = misspelled_name(stem, recipe_names());
  const std::string looked = bare && !folders.empty() ? fmt::format(" here or in {}", fmt::join(folders, ", ")) : "";
  bad_input(Code::recipe_not_found, "recipe {} not found{}; {}", name, looked,
            meant.empty() ? "'some lab list' shows those that come with the program"
                          : fmt::format("did you mean {}?", meant));
}

}  // namespace some
