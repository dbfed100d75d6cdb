// What was found at a place where a conversion is to work, in sentences.
#pragma once

#include <QString>
#include <vector>

#include "ui/bridge/engine_service.h"

namespace shardscope::ui {

struct PlaceLine {
    enum class Kind : uint8_t { good, unknown, warning, bad } kind = Kind::good;
    QString text;
};

struct PlaceReport {
    QString place;
    std::vector<PlaceLine> lines;
    PlaceLine::Kind worst() const;
    QString summary() const;  // "Ready.", "2 things are in the way.", or what is not known
};

struct PlaceNeeds {
    QString source, destination;
    uint64_t bytes = 0;      // that the destination takes; 0 = not known
    bool overwrite = false;  // the destination may be there
};

PlaceReport placeReport(const QString& place, const Result<PlaceFacts>& facts, const PlaceNeeds& needs);

// Slurm, asked with its own programs on this machine; `options` as in "slurm:OPTIONS". What its nodes see is
// not known before a job runs there. `here` is what this machine sees. Blocks.
PlaceReport slurmReport(const QString& options, const Result<PlaceFacts>& here, const PlaceNeeds& needs,
                        const StopToken& stop);

// Distributed ranks on this machine.
struct RankNeeds {
    std::optional<Result<std::string>> torch;  // where libtorch is, where they need it
    bool gpus = false;                         // a rank on each
    unsigned gpusHere = 0;
};
PlaceReport rankReport(const QString& place, const RankNeeds& ranks, const Result<PlaceFacts>& here,
                       const PlaceNeeds& needs);

QString markOf(PlaceLine::Kind kind);  // "✓", "–", "▲", "✕"

}  // namespace shardscope::ui
