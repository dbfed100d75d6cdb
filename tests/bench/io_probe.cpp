// How fast this disk copies: io_probe SOURCE... DESTINATION reads all bytes of the sources and writes them
// into one preallocated file, past the page cache, 4 MiB at a time on several threads, and syncs. Prints a
// JSON object.
//   --read-only SOURCE...   only reads (through the page cache when it is there)
//   --read-back SOURCE... DESTINATION   and reads each block back on two more threads once it is written
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "storage/aligned_buffer.h"
#include "storage/file_system.h"

using namespace shardscope;

namespace {

template <class T>
T must(Result<T> result) {
    if (!result.ok()) {
        std::fprintf(stderr, "io_probe: %s\n", describe(result.error()).c_str());
        std::exit(1);
    }
    return std::move(result).value();
}

void must(const Status& status) {
    if (!status.ok()) {
        std::fprintf(stderr, "io_probe: %s\n", describe(status.error()).c_str());
        std::exit(1);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const bool readOnly = argc > 1 && std::strcmp(argv[1], "--read-only") == 0;
    const bool readBack = argc > 1 && std::strcmp(argv[1], "--read-back") == 0;
    const int firstArgument = readOnly || readBack ? 2 : 1;
    const int lastSource = readOnly ? argc : argc - 1;
    constexpr uint64_t kBlock = uint64_t{4} << 20;
    const auto system = systemFileSystem(IoMode::automatic);
    struct Piece {
        std::shared_ptr<const ReadFile> file;
        uint64_t from, to, length;
    };
    std::vector<Piece> pieces;
    uint64_t total = 0;
    for (int i = firstArgument; i < lastSource; ++i) {
        const auto [parent, name] = splitPath(argv[i]);
        const auto file = must(must(system->openDirectory(parent))->openFile(name));
        for (uint64_t at = 0; at < file->size(); at += kBlock) {
            const uint64_t length = std::min(kBlock, file->size() - at);
            pieces.push_back({file, at, total, length});
            total = (total + length + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
        }
    }
    std::shared_ptr<WriteFile> out;
    std::shared_ptr<const ReadFile> back;
    const auto start = std::chrono::steady_clock::now();
    if (!readOnly) {
        const auto [parent, name] = splitPath(argv[argc - 1]);
        out = must(must(system->openDirectory(parent))->createFile(name));
        must(out->allocate(total));
        if (readBack) back = must(must(system->openDirectory(parent))->openFile(name));
    }
    std::atomic<size_t> next{0}, nextBack{0};
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<size_t> written;
    std::vector<std::thread> threads;
    for (int t = 0; back && t < 2; ++t) {
        threads.emplace_back([&] {
            AlignedBuffer buffer(kBlock);
            for (size_t i = nextBack++; i < pieces.size(); i = nextBack++) {
                std::unique_lock lock(mutex);
                changed.wait(lock, [&] { return i < written.size(); });
                const Piece& piece = pieces[written[i]];
                lock.unlock();
                must(back->readBulk(piece.to, buffer.span(0, piece.length)));
            }
        });
    }
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            AlignedBuffer buffer(kBlock);
            for (size_t i = next++; i < pieces.size(); i = next++) {
                const auto span = buffer.span(0, pieces[i].length);
                must(pieces[i].file->readBulk(pieces[i].from, span));
                if (out) must(out->writeBulk(pieces[i].to, span));
                std::lock_guard lock(mutex);
                written.push_back(i);
                changed.notify_all();
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    if (out) must(out->sync());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("{\"bytes\": %llu, \"seconds\": %.4f}\n", static_cast<unsigned long long>(total), seconds);
}
