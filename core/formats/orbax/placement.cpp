#include "formats/orbax/placement.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/base64.h"
#include "encoding/json_value.h"
#include "encoding/strict_json.h"
#include "model/value_view.h"

namespace shardscope::orbax {

namespace {

constexpr int64_t kMostDevices = 1 << 20;

Error wrongSharding(std::string message) {
    return damaged(std::move(message)).byRule(rule::metaInconsistent);
}

// Nested lists of {"id": N}, in row-major order; false for anything else.
bool addIds(ValueView mesh, size_t depth, std::vector<int64_t>& ids) {
    if (depth == 0) {
        const auto id = mesh["id"].integer();
        if (!id) return false;
        ids.push_back(*id);
        return std::ssize(ids) <= kMostDevices;
    }
    const std::vector<ValueView> parts = mesh.items();
    return mesh.isList() &&
           std::ranges::all_of(parts, [&](ValueView part) { return addIds(part, depth - 1, ids); });
}

// The members of the file, one after the other: of a mesh of many devices each is some kilobytes, and most
// are the same.
class ShardingEvents final : public safetensors::JsonEvents {
  public:
    using Take = std::function<Status(std::string name, const std::string& sharding)>;
    explicit ShardingEvents(Take take) : take_(std::move(take)) {}

  private:
    bool onKey(std::string& key) override {
        auto name = fromBase64(key);
        if (!name)
            return fail(
                wrongSharding(fmt::format("the name '{}' is not base64", printable(key, kNameInMessage))));
        name_ = *std::move(name);
        return true;
    }
    bool onText(std::string& text) override {
        if (depth() == 0) return wrongKind();
        Status taken = take_(name_, text);
        return taken.ok() || fail(std::move(taken).error());
    }
    bool onCount(uint64_t) override { return wrongKind(); }
    bool onOther(std::string_view) override { return wrongKind(); }
    bool onOpen(bool object) override { return (object && depth() == 0) || wrongKind(); }
    bool onClose(bool) override { return true; }
    bool wrongKind() { return fail(wrongSharding("it is not a JSON object of shardings as texts")); }

    const Take take_;
    std::string name_;
};

// The members of the file when it is as Orbax writes it: an object of texts, keys without escapes. Of a text
// that was there before, escapes and all, nothing is unpacked, because those of a large mesh are most of the
// file. False: it is something else, or may be.
class PlainMembers {
  public:
    explicit PlainMembers(std::string_view text) : text_(text) {}

    bool read(const std::function<bool(std::string_view key, std::string_view spelled)>& take) {
        if (!skip('{')) return false;
        for (bool first = true; !skip('}'); first = false) {
            std::string_view key, spelled;
            if (!first && !skip(',')) return false;
            if (!quoted(key) || key.find('\\') != key.npos || !skip(':') || !quoted(spelled) ||
                !take(key, spelled))
                return false;
        }
        return text_.find_first_not_of(" \t\r\n") == text_.npos;
    }

  private:
    bool skip(char wanted) {
        const size_t at = text_.find_first_not_of(" \t\r\n");
        if (at == text_.npos || text_[at] != wanted) return false;
        text_.remove_prefix(at + 1);
        return true;
    }
    // What stands between two quotes.
    bool quoted(std::string_view& out) {
        if (!skip('"')) return false;
        for (size_t end = text_.find('"'); end != text_.npos; end = text_.find('"', end + 1)) {
            size_t escapes = 0;
            while (escapes < end && text_[end - 1 - escapes] == '\\')
                ++escapes;
            if (escapes % 2 != 0) continue;
            out = text_.substr(0, end);
            text_.remove_prefix(end + 1);
            return true;
        }
        return false;
    }

    std::string_view text_;
};

}  // namespace

Mesh DeviceMesh::asMesh() const {
    Mesh mesh;
    mesh.axes = axes;
    mesh.source = Mesh::Source::declared;
    mesh.evidence.push_back("_sharding; ranks are devices");
    std::string numbers;
    bool other = false;
    for (size_t i = 0; i < ids.size(); ++i) {
        other = other || ids[i] != static_cast<int64_t>(i);
        if (i < 16) numbers += (i ? ", " : "") + std::to_string(ids[i]);
    }
    if (other)
        mesh.evidence.push_back(
            fmt::format("the ranks from 0 on are the devices {}{}", numbers, ids.size() > 16 ? ", ..." : ""));
    return mesh;
}

const std::vector<uint32_t>* ShardHolders::of(DimSpan shape, DimSpan offsets, DimSpan lengths) const {
    size_t shard = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
        // JAX cuts evenly or not at all.
        if (shape[d] == 0 || shape[d] % parts[d] != 0) return nullptr;
        const int64_t each = shape[d] / parts[d];
        const int64_t index = offsets[d] / each;
        if ((offsets[d] + lengths[d] - 1) / each != index) return nullptr;
        shard = shard * static_cast<size_t>(parts[d]) + static_cast<size_t>(index);
    }
    return shard < ranks.size() && !ranks[shard].empty() ? &ranks[shard] : nullptr;
}

Result<Placement> Placement::parse(std::string_view text) {
    Placement placement;
    std::unordered_map<std::string, uint32_t> known;  // a few shardings are those of all arrays
    std::vector<size_t> arrays;
    const auto add = [&](std::string name, const std::string& spelled) -> Status {
        const auto [at, added] =
            known.try_emplace(spelled, static_cast<uint32_t>(placement.shardings_.size()));
        if (added) {
            SHARDSCOPE_ASSIGN(Sharding sharding, parseOne(spelled));
            placement.shardings_.push_back(std::move(sharding));
            arrays.push_back(0);
        }
        ++arrays[at->second];
        placement.byName_[std::move(name)] = at->second;
        return {};
    };
    std::unordered_map<std::string_view, std::string> unpacked;
    const bool plain = PlainMembers(text).read([&](std::string_view key, std::string_view spelled) {
        auto name = fromBase64(key);
        if (!name || placement.byName_.contains(*name)) return false;
        const auto [at, added] = unpacked.try_emplace(spelled);
        if (added) {
            const Value parsed = jsonValue(fmt::format("\"{}\"", spelled));
            if (!ValueView(parsed).text()) return false;
            at->second = *ValueView(parsed).text();
        }
        return add(*std::move(name), at->second).ok();
    });
    if (!plain) {
        // Whatever is wrong with it, the strict reader says.
        placement = Placement();
        known.clear();
        arrays.clear();
        ShardingEvents events(add);
        if (Status status = events.parse(text, 0, "the shardings"); !status.ok())
            return wrongSharding(std::move(status).error().message);
    }
    std::pair<size_t, size_t> most;
    for (size_t i = 0; i < placement.shardings_.size(); ++i) {
        const auto& mesh = placement.shardings_[i].mesh;
        if (!mesh) continue;
        size_t used = 0;
        for (size_t j = 0; j < arrays.size() && arrays.size() < 1000; ++j)
            used += placement.shardings_[j].mesh == mesh ? arrays[j] : 0;
        const std::pair<size_t, size_t> here{mesh->asMesh().ranks(), used};
        if (placement.mesh_ && here <= most) continue;
        most = here;
        placement.mesh_ = mesh;
    }
    return placement;
}

Result<Placement::Sharding> Placement::parseOne(const std::string& text) {
    const Value parsed = jsonValue(text);
    const ValueView document = parsed;
    if (!document.isMapping()) return wrongSharding("a sharding is not a JSON object");
    Sharding sharding;
    const ValueView type = document["sharding_type"];
    if (type.isText("SingleDeviceSharding")) {
        // "cpu:0", "TFRT_CPU_0": the digits at the end.
        const std::string_view name = document["device_str"].text().value_or("");
        if (const auto id = parseNumber<int64_t>(name.substr(name.find_last_not_of("0123456789") + 1)))
            sharding.device = *id;
        return sharding;
    }
    // PositionalSharding and what else there may be says nothing that is understood here.
    if (!type.isText("NamedSharding")) return sharding;
    const ValueView spec = document["partition_spec"];
    const std::vector<ValueView> shape = document["shape"].items(), names = document["axis_names"].items();
    if (!document["shape"].isList() || !document["axis_names"].isList() || !spec.isList() ||
        shape.size() != names.size() || shape.size() > static_cast<size_t>(kMaxRank))
        return wrongSharding("a NamedSharding has no mesh, no names of axes or no partition");
    DeviceMesh mesh;
    int64_t devices = 1;
    for (size_t a = 0; a < shape.size(); ++a) {
        const int64_t size = shape[a].integer().value_or(0);
        if (!names[a].text() || size < 1 || !checkedMul(devices, size, devices) || devices > kMostDevices)
            return wrongSharding("the mesh of a NamedSharding has an axis without a size or a name");
        mesh.axes.push_back({std::string(*names[a].text()), static_cast<uint32_t>(size)});
    }
    if (const ValueView grid = document["device_mesh"]; grid.isMapping()) {
        if (!addIds(grid["mesh"], mesh.axes.size(), mesh.ids) || std::ssize(mesh.ids) != devices)
            return wrongSharding(
                fmt::format("the device mesh of a NamedSharding does not have {} as its shape says",
                            counted(devices, "device")));
    }
    const std::vector<ValueView> parts = spec.items();
    if (parts.size() > static_cast<size_t>(kMaxRank))
        return wrongSharding("a partition has too many dimensions");
    std::vector<bool> used(mesh.axes.size(), false);
    for (const ValueView part : parts) {
        std::vector<uint32_t> axes;
        std::vector<ValueView> list = part.items();
        if (!part.isList() && !part.is(ValueKind::none)) list = {part};
        for (const ValueView name : list) {
            const auto axis =
                std::ranges::find_if(mesh.axes, [&](const MeshAxis& a) { return name.isText(a.name); });
            const auto a = static_cast<uint32_t>(axis - mesh.axes.begin());
            if (axis == mesh.axes.end() || used[a])
                return wrongSharding("a partition names an axis that its mesh does not have once");
            used[a] = true;
            axes.push_back(a);
        }
        sharding.spec.push_back(std::move(axes));
    }
    sharding.mesh = std::move(mesh);
    return sharding;
}

std::unique_ptr<ShardHolders> Placement::holdersOf(const Sharding& sharding, size_t rank,
                                                   const DeviceMesh& shown) {
    // Device to rank. Without numbers of devices two meshes of one size are taken to be in the same order.
    std::unordered_map<int64_t, uint32_t> rankOf;
    for (size_t i = 0; i < shown.ids.size(); ++i)
        rankOf[shown.ids[i]] = static_cast<uint32_t>(i);
    const uint32_t world = shown.asMesh().ranks();
    const auto find = [&](int64_t device) -> std::optional<uint32_t> {
        if (const auto at = rankOf.find(device); at != rankOf.end()) return at->second;
        if (shown.ids.empty() && device >= 0 && device < int64_t{world}) return static_cast<uint32_t>(device);
        return std::nullopt;
    };
    auto holders = std::make_unique<ShardHolders>();
    holders->parts.assign(rank, 1);
    if (!sharding.mesh) {
        const auto one = find(sharding.device);
        if (!one) return nullptr;
        holders->ranks = {{*one}};
        return holders;
    }
    const Mesh mesh = sharding.mesh->asMesh();
    if (sharding.spec.size() > rank) return nullptr;
    size_t shards = 1;
    for (size_t d = 0; d < sharding.spec.size(); ++d) {
        for (const uint32_t axis : sharding.spec[d])
            holders->parts[d] *= mesh.axes[axis].size;
        shards *= static_cast<size_t>(holders->parts[d]);
    }
    holders->ranks.resize(shards);
    const uint32_t devices = mesh.ranks();
    for (uint32_t i = 0; i < devices; ++i) {
        const auto at = find(sharding.mesh->ids.empty() ? int64_t{i} : sharding.mesh->ids[i]);
        if (!at) return nullptr;
        const std::vector<uint32_t> coordinates = mesh.coordinates(i);
        size_t shard = 0;
        for (size_t d = 0; d < rank; ++d) {
            size_t index = 0;
            for (const uint32_t axis : d < sharding.spec.size() ? sharding.spec[d] : std::vector<uint32_t>{})
                index = index * mesh.axes[axis].size + coordinates[axis];
            shard = shard * static_cast<size_t>(holders->parts[d]) + index;
        }
        holders->ranks[shard].push_back(*at);
    }
    for (auto& ranks : holders->ranks)
        std::ranges::sort(ranks);
    return holders;
}

const ShardHolders* Placement::holders(std::string_view name, DimSpan shape, const DeviceMesh& shown) {
    const auto at = byName_.find(std::string(name));
    if (at == byName_.end()) return nullptr;
    Sharding& sharding = shardings_[at->second];
    const auto [known, added] = sharding.byRank.try_emplace(shape.size());
    if (added) known->second = holdersOf(sharding, shape.size(), shown);
    return known->second.get();
}

}  // namespace shardscope::orbax
