#include "support/synthetic_catalog.h"

#include <fmt/format.h>

namespace shardscope::ui {

std::shared_ptr<const Catalog> syntheticModel(const SyntheticOptions& o) {
    CatalogBuilder builder("dcp", "", "synthetic");
    const uint32_t world = o.pp * o.dp * o.tp;
    std::vector<FileId> files;
    std::vector<uint64_t> end(world, 0);
    for (uint32_t r = 0; r < world; ++r) {
        FileInfo info;
        info.path = fmt::format("__{}_0.distcp", r);
        info.rank = r;
        info.state = r == o.missingFileRank ? FileInfo::State::missing : FileInfo::State::present;
        files.push_back(builder.addFile(info));
    }
    const auto add = [&](const std::string& name, uint32_t stage, bool matrix, Role role, bool hole) {
        TensorInfo info;
        info.name = name;
        info.dtype = role == Role::optimizer ? DType::float32 : DType::bfloat16;
        info.role = role;
        info.shape = matrix ? Dims{4096, 4096} : Dims{4096};
        if (!builder.addTensor(info).ok()) return;
        const uint64_t item = role == Role::optimizer ? 4 : 2;
        for (uint32_t d = 0; d < o.dp; ++d) {
            for (uint32_t t = 0; t < (matrix ? o.tp : 1); ++t) {
                if (hole && d == o.dp - 1 && t == o.tp - 1) continue;
                const uint32_t rank = (stage * o.dp + d) * o.tp + t;
                const Dims offsets = matrix ? Dims{4096 / o.dp * d, 4096 / o.tp * t} : Dims{4096 / o.dp * d};
                const Dims lengths = matrix ? Dims{4096 / o.dp, 4096 / o.tp} : Dims{4096 / o.dp};
                const uint64_t length = static_cast<uint64_t>(elementCount(lengths)) * item;
                if (!builder.addChunk({rank, files[rank], end[rank], length, offsets, lengths, std::nullopt})
                         .ok())
                    return;
                end[rank] += length;
            }
        }
    };
    for (uint32_t l = 0; l < o.layers; ++l) {
        const uint32_t stage = l * o.pp / o.layers;
        for (uint32_t i = 0; i < o.tensorsPerLayer; ++i) {
            const bool matrix = i % 2 == 0;
            const std::string name = fmt::format(
                "model.layers.{}.{}", l,
                matrix ? fmt::format("mlp.w{}.weight", i / 2) : fmt::format("norm{}.weight", i / 2));
            add(name, stage, matrix, Role::parameter, l == o.gapLayer && i == 0);
            if (!o.optimizer) continue;
            add("optimizer.state." + name + ".exp_avg", stage, matrix, Role::optimizer, false);
            add("optimizer.state." + name + ".exp_avg_sq", stage, matrix, Role::optimizer, false);
        }
    }
    for (uint32_t r = 0; r < world; ++r)
        builder.file(files[r]).size = end[r];
    builder.setMesh(Mesh{{{"pp", o.pp}, {"dp", o.dp}, {"tp", o.tp}}, Mesh::Source::declared, {}});
    builder.setRankCount(world);
    return std::make_shared<const Catalog>(std::move(builder).finish());
}

std::shared_ptr<const Catalog> syntheticGrid(uint32_t tensors, uint32_t chunks) {
    CatalogBuilder builder("dcp", "", "synthetic");
    std::vector<FileId> files;
    for (uint32_t r = 0; r < chunks; ++r) {
        FileInfo info;
        info.path = fmt::format("__{}_0.distcp", r);
        info.rank = r;
        info.size = uint64_t{tensors} * 4096;
        files.push_back(builder.addFile(info));
    }
    builder.reserve(tensors, size_t{tensors} * chunks, size_t{tensors} * chunks * 4);
    for (uint32_t t = 0; t < tensors; ++t) {
        TensorInfo info;
        info.name = fmt::format("model.layers.{}.block.{}.weight", t / 96, t % 96);
        info.dtype = DType::bfloat16;
        info.shape = {int64_t{chunks} * 2, 1024};
        if (!builder.addTensor(info).ok()) return nullptr;
        for (uint32_t c = 0; c < chunks; ++c) {
            const Dims offsets{int64_t{c} * 2, 0}, lengths{2, 1024};
            if (!builder.addChunk({c, files[c], uint64_t{t} * 4096, 4096, offsets, lengths, std::nullopt})
                     .ok())
                return nullptr;
        }
    }
    builder.setRankCount(chunks);
    return std::make_shared<const Catalog>(std::move(builder).finish());
}

std::shared_ptr<const Catalog> syntheticLarge() {
    constexpr uint32_t kTensors = 9216, kRanks = 1000, kStages = 10, kPerStage = kRanks / kStages;
    // So many tensors reach over 80 ranks of the next stage as well.
    constexpr uint32_t kWide = 1024, kMore = 80;
    CatalogBuilder builder("dcp", "", "synthetic");
    std::vector<FileId> files;
    std::vector<uint64_t> end(kRanks, 0);
    for (uint32_t r = 0; r < kRanks; ++r) {
        FileInfo info;
        info.path = fmt::format("__{}_0.distcp", r);
        info.rank = r;
        files.push_back(builder.addFile(info));
    }
    builder.reserve(kTensors, size_t{kTensors} * kPerStage + size_t{kWide} * kMore, size_t{4'100'000});
    constexpr const char* kNames[] = {"attn.q", "attn.k", "attn.v", "attn.o",
                                      "mlp.w1", "mlp.w2", "mlp.w3", "norm"};
    for (uint32_t t = 0; t < kTensors; ++t) {
        const uint32_t stage = t * kStages / kTensors;
        const uint32_t pieces = kPerStage + (t < kWide ? kMore : 0);
        TensorInfo info;
        info.name = fmt::format("model.layers.{}.{}.weight{}", t / 96, kNames[t % 8], t % 96 / 8);
        info.dtype = DType::bfloat16;
        info.shape = {int64_t{pieces} * 8, 512};
        if (!builder.addTensor(info).ok()) return nullptr;
        for (uint32_t c = 0; c < pieces; ++c) {
            const uint32_t rank = (stage * kPerStage + c) % kRanks;
            const Dims offsets{int64_t{c} * 8, 0}, lengths{8, 512};
            if (!builder.addChunk({rank, files[rank], end[rank], 8192, offsets, lengths, std::nullopt}).ok())
                return nullptr;
            end[rank] += 8192;
        }
    }
    for (uint32_t r = 0; r < kRanks; ++r)
        builder.file(files[r]).size = end[r];
    builder.setMesh(Mesh{{{"pp", kStages}, {"fsdp", kPerStage}}, Mesh::Source::declared, {}});
    builder.setRankCount(kRanks);
    return std::make_shared<const Catalog>(std::move(builder).finish());
}

}  // namespace shardscope::ui
