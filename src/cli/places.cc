#include "cli/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "train/recipe_schema.h"

namespace some::cli {

namespace fs = std::filesystem;

std::vector<std::string> recipe_folders() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::string> found;
  for (const fs::path& place : {fs::path("recipes"), program / "recipes", program.parent_path() / "recipes",
                                program.parent_path() / "share/some/recipes"}) {
    if (!fs::is_directory(place, ignored)) continue;
    const std::string name = place.lexically_normal().string();
    if (std::find(found.begin(), found.end(), name) == found.end()) found.push_back(name);
  }
  return found;
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const std::string& folder : recipe_folders()) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".toml" && entry.path().stem() != "index")
        names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string find_recipe(const std::string& name) {
  std::error_code ignored;
  if (name.empty() || fs::exists(name, ignored)) return name;
  if (fs::exists(name + ".toml", ignored)) return name + ".toml";
  const bool bare = name.find('/') == std::string::npos;
  const std::string file = name.ends_with(".toml") ? name : name + ".toml";
  const std::vector<std::string> folders = recipe_folders();
  for (const std::string& folder : folders) {
    if (bare && fs::exists(fs::path(folder) / file, ignored)) return (fs::path(folder) / file).string();
  }
  const std::string stem = fs::path(file).stem().string();
  const std::string meant = misspelled_name(stem, recipe_names());
  const std::string looked = bare && !folders.empty() ? fmt::format(" here or in {}", fmt::join(folders, ", ")) : "";
  bad_input("there is no recipe {}{}; {}", name, looked,
            meant.empty() ? "'some lab list' shows those that come with the program"
                          : fmt::format("did you mean {}?", meant));
}

}  // namespace some::cli
