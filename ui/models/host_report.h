// What was found on a host where a conversion is to work, in sentences.
#pragma once

#include <QString>
#include <vector>

#include "ui/bridge/engine_service.h"

namespace shardscope::ui {

struct HostLine {
    enum class Kind : uint8_t { good, unknown, warning, bad } kind = Kind::good;
    QString text;
};

struct HostReport {
    QString host;
    std::vector<HostLine> lines;
    HostLine::Kind worst() const;
    QString summary() const;  // "Ready.", "2 things are in the way.", or what is not known
};

struct HostNeeds {
    QString source, destination;
    uint64_t bytes = 0;      // that the destination takes; 0 = not known
    bool overwrite = false;  // the destination may be there
};

HostReport hostReport(const QString& host, const Result<HostFacts>& facts, const HostNeeds& needs);

// Slurm, asked with its own programs on this machine; `options` as in "slurm:OPTIONS". What its nodes see is
// not known before a job runs there. `here` is what this machine sees. Blocks.
HostReport slurmReport(const QString& options, const Result<HostFacts>& here, const HostNeeds& needs,
                       const StopToken& stop);

// Distributed ranks on this machine.
struct RankNeeds {
    std::optional<Result<std::string>> torch;  // where libtorch is, where they need it
    bool gpus = false;                         // a rank on each
    unsigned gpusHere = 0;
};
HostReport rankReport(const QString& host, const RankNeeds& ranks, const Result<HostFacts>& here,
                      const HostNeeds& needs);

QString markOf(HostLine::Kind kind);  // "✓", "–", "▲", "✕"

}  // namespace shardscope::ui
