#include "engine/added_files.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/units.h"

namespace shardscope {

namespace {

constexpr size_t kCopied = size_t{1} << 20;  // bytes at a time
constexpr uint64_t kMostAsset = uint64_t{256} << 20;

class LayoutWithFiles final : public TargetLayout {
  public:
    LayoutWithFiles(std::unique_ptr<TargetLayout> inner, std::vector<AddedFile> added)
        : inner_(std::move(inner)), added_(std::move(added)) {
        files = inner_->files;
        chunkFile = inner_->chunkFile;
        chunkOffset = inner_->chunkOffset;
        changed = inner_->changed;
        needsCrc = inner_->needsCrc;
        for (const AddedFile& file : added_)
            files.push_back({file.name, file.size(), true});
    }
    Status chunkLiterals(ChunkId chunk, uint32_t crc32, const LiteralSink& sink) const override {
        return inner_->chunkLiterals(chunk, crc32, sink);
    }
    Status fileLiterals(FileId file, std::span<const uint32_t> chunkCrcs,
                        const LiteralSink& sink) const override {
        if (file < inner_->files.size()) return inner_->fileLiterals(file, chunkCrcs, sink);
        const AddedFile& added = added_[file - inner_->files.size()];
        if (!added.copied) return sink(file, 0, std::as_bytes(std::span(added.bytes)));
        std::vector<std::byte> buffer(static_cast<size_t>(std::min<uint64_t>(kCopied, added.size())));
        for (uint64_t at = 0; at < added.size(); at += buffer.size()) {
            const std::span part = std::span(buffer).first(
                static_cast<size_t>(std::min<uint64_t>(buffer.size(), added.size() - at)));
            SHARDSCOPE_TRY(added.copied->readAt(at, part));
            SHARDSCOPE_TRY(sink(file, at, part));
        }
        return {};
    }

  private:
    const std::unique_ptr<TargetLayout> inner_;
    const std::vector<AddedFile> added_;
};

// Source: transformers' utils/__init__.py, tokenization_utils_base.py, the vocabularies of its tokenizers.
// Code
// (*.py) is left where it is.
bool isAsset(std::string_view name) {
    constexpr std::array<std::string_view, 17> kNames{"config.json",
                                                      "configuration.json",
                                                      "generation_config.json",
                                                      "tokenizer.json",
                                                      "tokenizer.model",
                                                      "tokenizer_config.json",
                                                      "special_tokens_map.json",
                                                      "added_tokens.json",
                                                      "vocab.json",
                                                      "vocab.txt",
                                                      "merges.txt",
                                                      "spiece.model",
                                                      "sentencepiece.bpe.model",
                                                      "preprocessor_config.json",
                                                      "processor_config.json",
                                                      "chat_template.json",
                                                      "chat_template.jinja"};
    return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || name.ends_with(".tiktoken");
}

}  // namespace

std::unique_ptr<TargetLayout> withFiles(std::unique_ptr<TargetLayout> layout, std::vector<AddedFile> added) {
    if (added.empty()) return layout;
    return std::make_unique<LayoutWithFiles>(std::move(layout), std::move(added));
}

Result<std::vector<AddedFile>> findAssets(const Checkpoint& checkpoint, const std::string& wanted,
                                          std::string& from) {
    std::vector<AddedFile> assets;
    if (wanted == "none") return assets;
    std::vector<std::string> places{wanted};
    const bool automatic = wanted.empty() || wanted == "auto";
    if (automatic) places = {joinPath(checkpoint.path, "huggingface"), checkpoint.path};
    for (const std::string& place : places) {
        const auto source = sourceFor(place, IoMode::automatic,
                                      automatic ? checkpoint.fileSystem : std::shared_ptr<FileSystem>());
        if (automatic && (!source.ok() || !source->entry.empty())) continue;
        if (!source.ok()) return source.error();
        if (!source->hasFile("config.json")) continue;
        for (const DirectoryEntry& entry : source->entries) {
            if (entry.kind != DirectoryEntry::Kind::file || !isAsset(entry.name)) continue;
            if (entry.size > kMostAsset)
                return makeError(ErrorCode::limit,
                                 fmt::format("'{}' has {}, too many for a file of a tokenizer", entry.name,
                                             counted(entry.size, "byte")))
                    .inFile(place)
                    .withHint("leave such files out with " + option("assets", "none"));
            SHARDSCOPE_ASSIGN(auto file, source->directory->openFile(entry.name));
            assets.push_back({entry.name, {}, std::move(file)});
        }
        from = place;
        return assets;
    }
    if (automatic) return assets;
    return makeError(ErrorCode::usage, option("assets") + " names a directory without a config.json")
        .inFile(wanted)
        .withHint("name the directory of the model's config.json and tokenizer, or none");
}

}  // namespace shardscope
