// What the names in a pickle would mean to Python: plain data, or something that could run code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/catalog.h"

namespace shardscope {

enum class GlobalKind : uint8_t {
    weights,    // torch.load(weights_only=True) accepts it
    data,       // plain data of well-known libraries
    foreign,    // anything else
    dangerous,  // runs commands or code
};
GlobalKind classifyGlobal(std::string_view module, std::string_view name);
// Of "module.name".
GlobalKind classifyGlobal(std::string_view full);

// Notes of rule security.global for what a pickle names ("module.name"), the worst first.
std::vector<Note> globalNotes(const std::vector<std::string>& globals);

// All that the graph of a pickle names, thrown away or not, each once.
std::vector<std::string> globalsOf(const ValueGraph& graph);

}  // namespace shardscope
