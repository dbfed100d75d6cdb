// Coverage of 1,024 tensors x 1,024 chunks: cut along one dimension, in 32 x 32 grids, and in ragged
// three-dimensional boxes; each whole, and with one chunk missing in every tensor. Prints one JSON object of
// seconds.
#include <chrono>
#include <cstdio>
#include <random>
#include <string>

#include "model/coverage.h"

using namespace shardscope;

namespace {

constexpr int kTensors = 1024;

void add(CatalogBuilder& builder, const Dims& offsets, const Dims& lengths) {
    if (!builder.addChunk({0, 0, 0, 0, offsets, lengths, std::nullopt}).ok()) std::abort();
}

void addTensor(CatalogBuilder& builder, int t, Dims shape) {
    TensorInfo info;
    info.name = "layer." + std::to_string(t);
    info.shape = std::move(shape);
    if (!builder.addTensor(info).ok()) std::abort();
}

Catalog lines(bool hole) {
    CatalogBuilder builder("bench", "", "");
    for (int t = 0; t < kTensors; ++t) {
        addTensor(builder, t, {4096, 64});
        for (int i = 0; i < 1024; ++i) {
            if (!hole || i != t) add(builder, {i * 4, 0}, {4, 64});
        }
    }
    return std::move(builder).finish();
}

Catalog grids(bool hole) {
    CatalogBuilder builder("bench", "", "");
    for (int t = 0; t < kTensors; ++t) {
        addTensor(builder, t, {256, 256});
        for (int i = 0; i < 1024; ++i) {
            if (!hole || i != t) add(builder, {i / 32 * 8, i % 32 * 8}, {8, 8});
        }
    }
    return std::move(builder).finish();
}

// Cuts a box in two at a random place until there are 1,024 pieces: no regular grid fits.
Catalog ragged(bool hole) {
    CatalogBuilder builder("bench", "", "");
    std::mt19937 random(5);
    for (int t = 0; t < kTensors; ++t) {
        addTensor(builder, t, {128, 128, 128});
        std::vector<Box> boxes{{{0, 0, 0}, {128, 128, 128}}};
        while (boxes.size() < 1024) {
            const size_t pick = random() % boxes.size();
            const size_t dim = random() % 3;
            if (boxes[pick].lengths[dim] < 2) continue;
            Box second = boxes[pick];
            const int64_t cut =
                1 + static_cast<int64_t>(random() % static_cast<unsigned>(second.lengths[dim] - 1));
            boxes[pick].lengths[dim] = cut;
            second.offsets[dim] += cut;
            second.lengths[dim] -= cut;
            boxes.push_back(second);
        }
        for (size_t i = hole ? 1 : 0; i < boxes.size(); ++i)
            add(builder, boxes[i].offsets, boxes[i].lengths);
    }
    return std::move(builder).finish();
}

void measure(const char* name, const Catalog& catalog, bool hole, bool last) {
    const auto start = std::chrono::steady_clock::now();
    uint64_t gaps = 0;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t)
        gaps += checkCoverage(catalog, t).gaps.size();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if ((gaps > 0) != hole) std::abort();
    std::printf("\"%s%s\": %.6f%s", name, hole ? "_with_gaps" : "", seconds, last ? "" : ", ");
}

}  // namespace

int main() {
    std::printf("{");
    measure("lines", lines(false), false, false);
    measure("lines", lines(true), true, false);
    measure("grids", grids(false), false, false);
    measure("grids", grids(true), true, false);
    measure("ragged", ragged(false), false, false);
    measure("ragged", ragged(true), true, true);
    std::printf("}\n");
}
