// Changes to runs on the board: labels, deletion into the trash, and restoring from it. Each function takes the body of
// a request. A change of several runs does what it can and reports the runs that failed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "board/watch.h"

namespace some {

// {run, name, tags, note} -> the labels as they were stored
nlohmann::json change_labels(const Watch& watch, const nlohmann::json& body);
// {runs, add, remove, note} -> {changed, failed: [{name, message}]}: adds and removes tags, and appends a line to
// notes.
nlohmann::json change_many_labels(const Watch& watch, const nlohmann::json& body);
// {runs} -> {entries: [{entry, name}], failed: [{name, message}]}: the ids that restore them
nlohmann::json delete_runs(const Watch& watch, const nlohmann::json& body);
// {entries} -> {names, failed: [{name, message}]}
nlohmann::json restore_runs(const Watch& watch, const nlohmann::json& body);
// {runs: [{entry, name, place, when}]}: deleted runs, the last one first
nlohmann::json trash(const Watch& watch);

}  // namespace some
