// Changes to runs on the board: labels, deletion into the trash, and restoring from it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "board/watch.h"

namespace some {

// {run, name, tags, note} -> the labels as they were stored
nlohmann::json change_labels(const Watch& watch, const nlohmann::json& body);
// {run} -> {entry, name}: the id that restores it
nlohmann::json delete_run(const Watch& watch, const nlohmann::json& body);
// {entry} -> {name}
nlohmann::json restore_run(const Watch& watch, const nlohmann::json& body);
// {runs: [{entry, name, place, when}]}: deleted runs, the last one first
nlohmann::json trash(const Watch& watch);

}  // namespace some
