#include "model/rank_files.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/names.h"
#include "base/text.h"

namespace shardscope {

namespace {

constexpr size_t kMostTold = 100;

std::string quoted(const std::string& path) {
    return fmt::format("'{}'", printable(path, kNameInMessage));
}

class Misnamed {
  public:
    explicit Misnamed(std::span<const RankOrigin> files) : files_(files) {
        for (size_t f = 0; f < files.size(); ++f) {
            paths_.emplace_back(files[f].path);
            kinds_[paths_[f].text].push_back(f);
        }
    }

    std::vector<MisnamedFile> find() && {
        for (const auto& [kind, files] : kinds_)
            findByProcess(files);
        findByDevice();
        return std::move(found_);
    }

  private:
    void add(size_t file, std::string why) {
        if (found_.size() < kMostTold && told_.insert(file).second)
            found_.push_back({files_[file].path, std::move(why)});
    }

    void findByProcess(const std::vector<size_t>& files) {
        std::set<int64_t> stated;
        for (const size_t f : files)
            if (!files_[f].stated || !stated.insert(*files_[f].stated).second) return;
        for (size_t d = 0; d < paths_[files[0]].numbers.size(); ++d) {
            // The files of a line along this number, in its order.
            std::map<std::vector<uint64_t>, std::map<uint64_t, size_t>> lines;
            for (const size_t f : files) {
                std::vector<uint64_t> others = paths_[f].numbers;
                const uint64_t number = std::exchange(others[d], 0);
                lines[std::move(others)][number] = f;
            }
            for (const auto& [others, line] : lines)
                for (auto before = line.begin(), at = std::next(before); at != line.end(); before = at++)
                    compare(before->second, at->second);
        }
    }

    void compare(size_t before, size_t file) {
        const int64_t first = *files_[before].stated, second = *files_[file].stated;
        if (first < second) return;
        add(file, fmt::format("process {} wrote it, and process {} wrote {}: the files of ranks were "
                              "exchanged or renamed",
                              second, first, quoted(files_[before].path)));
    }

    void findByDevice() {
        // The devices of two kinds by rank; a kind with several files of a rank tells nothing.
        std::map<std::string, std::map<uint32_t, size_t>> byRank;
        for (const auto& [kind, files] : kinds_) {
            std::map<uint32_t, size_t> ranks;
            for (const size_t f : files)
                if (files_[f].device) ranks.emplace(files_[f].rank, f);
            if (ranks.size() == files.size()) byRank.emplace(kind, std::move(ranks));
        }
        for (auto one = byRank.begin(); one != byRank.end(); ++one)
            for (auto two = std::next(one); two != byRank.end(); ++two)
                compare(one->second, two->second);
    }

    void compare(const std::map<uint32_t, size_t>& one, const std::map<uint32_t, size_t>& two) {
        std::map<std::pair<int, int>, std::pair<size_t, size_t>> seen;  // files by their devices
        for (const auto& [rank, file] : one) {
            const auto other = two.find(rank);
            if (other == two.end()) continue;
            const int a = *files_[file].device, b = *files_[other->second].device;
            if (a == b) continue;
            seen.emplace(std::pair(a, b), std::pair(file, other->second));
            const auto turned = seen.find({b, a});
            if (turned == seen.end()) continue;
            add(other->second,
                fmt::format("its tensors were on device {}, those of {} on device {}; with {} and {} it is "
                            "the other way round: two of them were exchanged",
                            b, quoted(files_[file].path), a, quoted(files_[turned->second.second].path),
                            quoted(files_[turned->second.first].path)));
        }
    }

    const std::span<const RankOrigin> files_;
    std::vector<NumberedName> paths_;
    std::map<std::string, std::vector<size_t>> kinds_;
    std::vector<MisnamedFile> found_;
    std::set<size_t> told_;
};

}  // namespace

std::vector<MisnamedFile> misnamedFiles(std::span<const RankOrigin> files) {
    return Misnamed(files).find();
}

}  // namespace shardscope
