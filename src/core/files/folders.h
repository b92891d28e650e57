// Folders and paths: existence checks, listing, creation and removal. A path that cannot be examined never counts as
// missing: a network share that does not respond or a broken link is an error, not an empty folder.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/files.h"

namespace some {

// True if `path` exists. Fails (Fault::failure) if that cannot be determined: permissions, an input/output error, too
// many open files, a link to a missing target.
bool exists_path(const std::string& path);
bool folder_exists(const std::string& path);
bool file_exists(const std::string& path);  // false for folders, pipes and devices
bool is_link(const std::string& path);
// Returns a string that changes whenever the file is replaced or written to; empty if the file does not exist.
std::string file_stamp(const std::string& path);
// Returns the names in a folder, sorted, without "." and "..". Fails if the folder does not exist or cannot be read to
// its end.
std::vector<std::string> list_folder(const std::string& path);
// Creates the folder and its missing parents, and makes them durable.
void make_folder(const std::string& path);
// Returns why files cannot be created in a folder; empty if they can. Creates the folder if it is missing.
std::string unwritable_reason(const std::string& folder);
void remove_tree(const std::string& path);  // recursively; does nothing if the path does not exist
void move_path(const std::string& from, const std::string& to);
// Removes a folder recursively, atomically for other processes: it is renamed to NAME.removing first, so that a kill
// never leaves a half-removed folder under its original name.
void remove_folder(const std::string& path);

// Removes the temporary files that write_file_atomic left behind when its process was killed. Files that a living
// process is writing stay.
void remove_temporary_files(const std::string& folder);
void remove_temporary_files_of(const std::string& path);  // the same for the temporary files of one file
// write_file_atomic for a file in a folder that is not cleaned up otherwise: removes stale temporary files of this file
// first.
void write_output_file(const std::string& path, std::string_view contents);
void write_output_file(const std::string& path, const std::function<void(const ByteSink&)>& produce);

}  // namespace some
