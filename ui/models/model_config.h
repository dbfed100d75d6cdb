// What the model's own config.json, where a checkpoint comes with one, says of attention heads.
#pragma once

#include <QString>
#include <QStringList>
#include <cstdint>
#include <optional>
#include <string>

#include "model/mesh.h"

namespace shardscope::ui {

struct HeadCounts {
    int64_t heads = 0, keyValueHeads = 0;  // 0 = not said
    QString headsKey, keyValueKey, file;   // where it is said: "num_attention_heads", "config.json"
};

// Reads config.json in the directory of the checkpoint, or in the one above it. Nothing when there is none,
// or none that can be read: only numbers are taken from it. Blocks.
std::optional<HeadCounts> headCounts(const std::string& checkpoint);

// Why tensor parallelism over `mesh` does not fit these heads, a sentence each; axes called tp or mp, as
// Megatron and Paddle call them.
QStringList headNotes(const HeadCounts& counts, const Mesh& mesh);

}  // namespace shardscope::ui
