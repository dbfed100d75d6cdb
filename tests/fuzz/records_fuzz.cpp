// What the processes of one job tell each other and leave for each other, from anybody: tables of peers,
// jobs, tasks, errors and progress, places to run on, and the journals of conversions and parts with their
// marker. The first byte says which.
#include <nlohmann/json.hpp>

#include "cluster/messages.h"
#include "cluster/peer_files.h"
#include "cluster/slurm.h"
#include "cluster/worker_list.h"
#include "execute/part_journals.h"
#include "fuzz_file.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (data[0] % 5) {
        case 0: {
            const auto table = PeerTable::from(text);
            for (auto it = table.ok() ? table->entries().begin()
                                      : std::map<std::string, PeerTable::Entry>::const_iterator();
                 table.ok() && it != table->entries().end(); ++it) {
                if (!checkRelativeName(it->first).ok()) __builtin_trap();
                (void)table->ownerOf(it->first);
            }
            break;
        }
        case 1: {
            const auto json = parseMessage({std::string(text), {}});
            if (!json.ok()) break;
            if (const auto job = sharedJobFrom(*json); job.ok()) (void)sharedJobJson(*job);
            if (const auto task = partTaskFrom(*json); task.ok()) (void)partTaskJson(*task);
            (void)errorFrom(*json);
            (void)busyFrom(*json);
            (void)Peers::from(*json, 0, "v", nullptr);
            break;
        }
        case 2:
            (void)workersFrom(text);
            (void)parseWorkers(text);
            (void)parseSlurm(text);
            break;
        case 3: {
            const auto tiles = decodeTiles(text);
            if (tiles.ok() && decodeTiles(encodeTiles(*tiles)).value().size() != tiles->size())
                __builtin_trap();
            if (const auto finding = decodeFinding(text)) (void)encodeFindings({*finding});
            break;
        }
        default: {
            const auto file = std::make_shared<fuzz::BytesFile>(data + 1, size - 1);
            (void)PartJournals::marker(fuzz::BytesDirectory(file));
            (void)readJournal(*file);
            (void)readRecords(
                *file, [](const JournalHeader&) { return true; },
                [](std::string_view record) { return decodeFinding(record).has_value(); });
        }
    }
    return 0;
}
