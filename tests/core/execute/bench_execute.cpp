// Throughput of copying and merging tensors, against cp and against plain direct I/O in the same run.
//   bench_execute DIRECTORY [GIB]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "execute/fake_checkpoint.h"
#include "storage/aligned_buffer.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

double seconds(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void forgetCache(const std::string& directory) {
    ::sync();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
        if (!entry.is_regular_file()) continue;
        const int fd = ::open(entry.path().c_str(), O_RDONLY);
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        ::close(fd);
    }
}

// Header bytes before every chunk, as formats have them.
constexpr uint64_t kHead = 4096;

struct Layout final : TargetLayout {
    Status chunkLiterals(ChunkId, uint32_t, const LiteralSink&) const override { return {}; }
    Status fileLiterals(FileId, std::span<const uint32_t>, const LiteralSink&) const override { return {}; }
};

struct Set {
    std::vector<FakeTensor> tensors;
    std::vector<std::vector<Piece>> cuts;
    std::vector<std::string> files;
    std::vector<FakeChunk> chunks;
};

// One tensor cut into `parts` along `dim`, one file for each part.
Set oneTensor(const Dims& shape, size_t dim, int64_t parts, uint64_t head) {
    Set set;
    set.tensors = {{"w", DType::bfloat16, shape, {}, kNone}};
    set.cuts.resize(1);
    for (int64_t i = 0; i < parts; ++i) {
        Box box{Dims(shape.size(), 0), shape};
        box.lengths[dim] = shape[dim] / parts;
        box.offsets[dim] = i * box.lengths[dim];
        const auto bytes = static_cast<uint64_t>(elementCount(box.lengths)) * 2;
        set.cuts[0].push_back({box, std::nullopt});
        set.files.push_back(std::to_string(i) + ".bin");
        set.chunks.push_back({static_cast<FileId>(i), head, bytes, {}, false, false, false});
    }
    return set;
}

double convert(const std::string& from, const Set& source, const std::string& to, const Set& target,
               Verify verify, bool crc, const char* what, uint64_t totalBytes) {
    auto system = systemFileSystem();
    FakeReader reader(makeCatalog(source.tensors, source.cuts, source.files, &source.chunks), source.files,
                      source.chunks, system->openDirectory(from).value());
    TargetSpec spec;
    spec.target = makeCatalog(target.tensors, target.cuts, {}, nullptr);
    spec.sources = {{0}};
    Layout layout;
    layout.needsCrc = crc;
    for (size_t i = 0; i < target.files.size(); ++i) {
        layout.files.push_back({target.files[i], target.chunks[i].offset + target.chunks[i].length, false});
        layout.chunkFile.push_back(static_cast<FileId>(i));
        layout.chunkOffset.push_back(target.chunks[i].offset);
    }
    Plan plan;
    ConvertJob job;
    job.source = &reader;
    job.spec = &spec;
    job.layout = &layout;
    job.plan = &plan;
    job.fileSystem = system;
    job.destination = to;
    job.options.verify = verify;
    job.options.overwrite = true;
    job.reopen = [&](const std::string& path) -> Result<std::unique_ptr<Reader>> {
        return std::unique_ptr<Reader>(std::make_unique<FakeReader>(
            makeCatalog(target.tensors, target.cuts, target.files, &target.chunks), target.files,
            target.chunks, system->openDirectory(path).value()));
    };
    ThreadPool pool;
    MemoryBudget memory(uint64_t{512} << 20);
    Resources resources;
    resources.pool = &pool;
    resources.memory = &memory;
    const auto report = runConversion(job, resources);
    if (!report.ok()) {
        std::fprintf(stderr, "%s\n", describe(report.error()).c_str());
        std::exit(1);
    }
    std::printf("%-44s %6.2f s  %5.2f GB/s  verify %.2f s, peak %.0f MiB\n", what, report->seconds,
                static_cast<double>(totalBytes) / report->seconds / 1e9, report->verifySeconds,
                static_cast<double>(memory.peak()) / 1048576);
    std::fflush(stdout);
    return report->seconds;
}

double directCopy(const std::string& from, const std::string& to, uint64_t bytes) {
    constexpr uint64_t kPart = uint64_t{8} << 20;
    return seconds([&] {
        const int in = ::open(from.c_str(), O_RDONLY | O_DIRECT);
        const int out = ::open(to.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
        if (::fallocate(out, 0, 0, static_cast<off_t>(bytes)) != 0) std::exit(1);
        std::atomic<uint64_t> next{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                AlignedBuffer buffer(kPart);
                for (uint64_t at; (at = next.fetch_add(kPart)) < bytes;) {
                    const size_t n = std::min(kPart, bytes - at) / 4096 * 4096;
                    if (::pread(in, buffer.data(), n, static_cast<off_t>(at)) < 0) std::exit(1);
                    if (::pwrite(out, buffer.data(), n, static_cast<off_t>(at)) < 0) std::exit(1);
                }
            });
        }
        for (std::thread& t : threads)
            t.join();
        ::fsync(out);
        ::close(in);
        ::close(out);
    });
}

}  // namespace

int main(int argc, char** argv) {
    const std::string root = argc > 1 ? argv[1] : "/tmp/shardscope-bench";
    const uint64_t total = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 4) << 30;
    std::filesystem::create_directories(root + "/one");
    const Dims shape{static_cast<int64_t>(total / 2 / 8192), 8192};
    const auto line = [&](const char* what, double s) {
        std::printf("%-44s %6.2f s  %5.2f GB/s\n", what, s, static_cast<double>(total) / s / 1e9);
        std::fflush(stdout);
    };

    const Set one = oneTensor(shape, 0, 1, kHead);
    const Set odd = oneTensor(shape, 0, 1, 1234);
    const Set rows = oneTensor(shape, 0, 8, kHead);
    const Set columns = oneTensor(shape, 1, 8, kHead);
    {
        Random random(1);
        const Bytes block = randomBytes(random, 64 << 20);
        std::ofstream out(root + "/one/0.bin", std::ios::binary);
        out.write(reinterpret_cast<const char*>(block.data()), kHead);
        for (uint64_t done = 0; done < total; done += block.size()) {
            out.write(reinterpret_cast<const char*>(block.data()),
                      static_cast<std::streamsize>(block.size()));
        }
    }
    const auto drop = [&](const char* name) { std::filesystem::remove_all(root + "/" + name); };
    for (int round = 0; round < 2; ++round) {
        forgetCache(root);
        line("cp, cold, with sync", seconds([&] {
                 const std::string command =
                     "cp " + root + "/one/0.bin " + root + "/copy && sync " + root + "/copy";
                 if (std::system(command.c_str()) != 0) std::exit(1);
             }));
        drop("copy");
        forgetCache(root);
        line("plain O_DIRECT, 4 threads, cold", directCopy(root + "/one/0.bin", root + "/copy", total));
        drop("copy");
        forgetCache(root);
        convert(root + "/one", one, root + "/copied", one, Verify::none, false, "copy, cold", total);
        drop("copied");
        convert(root + "/one", one, root + "/copied", odd, Verify::none, false, "copy to an odd offset, cold",
                total);
        drop("copied");
        convert(root + "/one", one, root + "/copied", one, Verify::digest, true,
                "copy with CRC-32 and verification", total);
        drop("copied");
        convert(root + "/one", one, root + "/rows", rows, Verify::none, false, "split dim 0 in 8", total);
        convert(root + "/one", one, root + "/columns", columns, Verify::none, false, "split dim 1 in 8",
                total);
        forgetCache(root);
        convert(root + "/rows", rows, root + "/merged", one, Verify::none, false, "merge dim 0 of 8, cold",
                total);
        drop("merged");
        convert(root + "/columns", columns, root + "/merged", one, Verify::none, false,
                "merge dim 1 of 8, cold", total);
        drop("merged");
        drop("rows");
        drop("columns");
    }
    // From the page cache.
    const std::string warm = "cat " + root + "/one/0.bin > /dev/null";
    if (std::system(warm.c_str()) != 0) return 1;
    auto system = systemFileSystem();
    FakeReader reader(makeCatalog(one.tensors, one.cuts, one.files, &one.chunks), one.files, one.chunks,
                      system->openDirectory(root + "/one").value());
    ThreadPool pool;
    MemoryBudget memory(uint64_t{512} << 20);
    Resources resources;
    resources.pool = &pool;
    resources.memory = &memory;
    line("scan, cached, nothing done", seconds([&] {
             if (!scanTensors(reader, {0}, {}, resources, [](const TileView&) -> Status { return {}; }).ok())
                 std::exit(1);
         }));
    line("digest and values, cached", seconds([&] {
             if (!digestTensors(reader, {0}, {}, resources).ok()) std::exit(1);
         }));
    std::filesystem::remove_all(root);
    return 0;
}
