// Folders: whether something is there, what is in a folder, making and tidying one. What cannot be looked at is never
// taken for what is not there: a share that does not answer or a link whose target is gone is an error, not an empty
// folder.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"

namespace some {

// Whether there is something at `path`. Fails (Fault::failure) when there is no way to know: permissions, an
// input/output error, too many open files, a link that leads nowhere.
bool exists_path(const std::string& path);
bool folder_exists(const std::string& path);
bool file_exists(const std::string& path);  // no folder, pipe or device
bool is_link(const std::string& path);
// Another one whenever another file is put in its place or it is written to; empty where there is none.
std::string version_of(const std::string& path);
// The names in a folder, sorted, without "." and "..". Fails when the folder is not there or cannot be read to its end.
std::vector<std::string> list_folder(const std::string& path);
// Makes the folder, and those above it that are missing; they are there after a power cut too.
void make_folder(const std::string& path);
// Why no file can be put into a folder, which is made where it is missing; empty where one can.
std::string unwritable_reason(const std::string& folder);
void remove_tree(const std::string& path);  // and all that is in it; nothing happens where there is nothing
void move_path(const std::string& from, const std::string& to);
// Removes a folder and all that is in it, in one go as far as others can see: it is renamed to NAME.removing first, so
// that a kill leaves no folder with half of its files under its own name.
void remove_folder(const std::string& path);

// Removes what write_file_atomic left under a temporary name when its process was killed. Files that a living process
// is writing stay.
void remove_half_written_files(const std::string& folder);
void remove_half_written(const std::string& path);  // the same for what was left of this file alone
// write_file_atomic for a file whose folder nobody tidies: first what was left of this file alone is removed.
void write_output_file(const std::string& path, std::string_view contents);
void write_output_file(const std::string& path, const std::function<void(const ByteSink&)>& produce);

}  // namespace some
