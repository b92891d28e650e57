#include "cli/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/files/folders.h"
#include "recipe/schema.h"
#include "runs/run.h"

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

namespace {

bool names_run(const std::string& name) { return exists_path(RunPaths{"runs/" + name}.config()); }
bool is_bare(const std::string& name) { return name.find('/') == std::string::npos; }
std::string recipe_file(const std::string& name) { return name.ends_with(".toml") ? name : name + ".toml"; }

// Returns the file for a recipe's name or path; empty if it is not found.
std::string recipe_path(const std::string& name) {
  // A file such as the script quickstart in a checkout is not a recipe if a run has its name.
  const bool other = !name.empty() && is_bare(name) && !name.ends_with(".toml") && names_run(name);
  if (name.empty() || (exists_path(name) && !other)) return name;
  if (exists_path(name + ".toml")) return name + ".toml";
  if (!is_bare(name)) return "";
  for (const std::string& folder : recipe_folders()) {
    const std::string path = (fs::path(folder) / recipe_file(name)).string();
    if (exists_path(path)) return path;
  }
  return "";
}

}  // namespace

bool names_recipe(const std::string& name) { return !recipe_path(name).empty(); }

std::string find_recipe(const std::string& name) {
  if (const std::string path = recipe_path(name); name.empty() || !path.empty()) return path;
  if (is_bare(name) && names_run(name))
    bad_input(Code::recipe_not_found,
              "{} is a run, not a recipe; 'some train --resume {}' resumes it, 'some train --from {} --out NEW' starts "
              "from its weights",
              name, "runs/" + name, "runs/" + name);
  const bool bare = is_bare(name);
  const std::string file = recipe_file(name);
  const std::vector<std::string> folders = recipe_folders();
  const std::string stem = fs::path(file).stem().string();
  const std::string meant = misspelled_name(stem, recipe_names());
  const std::string looked = bare && !folders.empty() ? fmt::format(" here or in {}", fmt::join(folders, ", ")) : "";
  bad_input(
      Code::recipe_not_found, "recipe {} not found{}; {}", name, looked,
      meant.empty() ? "'some lab list' lists the recipes of the program" : fmt::format("did you mean {}?", meant));
}

Recipe load_named_recipe(const std::string& name, const std::vector<std::string>& changes) {
  const std::string path = find_recipe(name);
  try {
    return load_recipe(path, changes);
  } catch (const Error& error) {
    if (error.code() != Code::toml_syntax || path.ends_with(".toml")) throw;
    bad_input(Code::toml_syntax, "{}: not a recipe; to train on a text: some train default data.train={} --out runs/{}",
              path, path, fs::path(path).stem().string());
  }
}

std::string find_memory_file(const std::string& name) {
  const std::string run = folder_exists(name) ? name : is_bare(name) && !name.empty() ? "runs/" + name : "";
  if (run.empty() || !exists_path(RunPaths{run}.config())) return name;
  if (!exists_path(RunPaths{run}.memory()))
    bad_input(Code::memory_missing, "{} has no memory; 'some read {} TEXT' creates one", run, run);
  return RunPaths{run}.memory();
}

std::string find_run_folder(const std::string& name) {
  // A file of that name, such as the script quickstart in a checkout, is not a run.
  if (name.empty() || name.find('/') != std::string::npos || folder_exists(name)) return name;
  if (names_run(name)) return "runs/" + name;
  if (exists_path(name) || !folder_exists("runs")) return name;
  std::vector<std::string> names;
  for (const std::string& one : list_folder("runs")) {
    if (names_run(one)) names.push_back(one);
  }
  if (const std::string meant = misspelled_name(name, names); !meant.empty())
    bad_input(Code::run_not_found, "run {} not found here or in runs; did you mean {}?", name, meant);
  return name;
}

}  // namespace some
