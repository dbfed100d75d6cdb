// Any bytes as each file of a nanotron checkpoint: an error, or a catalog whose chunks lie inside their file.
#include "formats/nanotron/nanotron.h"
#include "fuzz_reader.h"

using namespace shardscope;

namespace {

using Kind = DirectoryEntry::Kind;

class Tree : public fuzz::BytesDirectory {
  public:
    explicit Tree(std::shared_ptr<const ReadFile> file) : BytesDirectory(file), size_(file->size()) {}
    Result<std::vector<DirectoryEntry>> list(std::string_view name) const override {
        if (name == "model") return std::vector<DirectoryEntry>{{"model", Kind::directory, 0}};
        if (name == "model/model")
            return std::vector<DirectoryEntry>{
                {"model_weight_pp-rank-0-of-1_tp-rank-0-of-2.safetensors", Kind::file, size_},
                {"model_weight_pp-rank-0-of-1_tp-rank-1-of-2.safetensors", Kind::file, size_}};
        if (name == "optimizer")
            return std::vector<DirectoryEntry>{
                {"optimizer_pp-0-of-1_dp-0-of-1_tp-0-of-2_exp-0-of-1.pt", Kind::file, size_}};
        return std::vector<DirectoryEntry>{};
    }

  private:
    uint64_t size_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    (void)fuzz::tryOpen(nanotronFormat(),
                        std::make_shared<Tree>(std::make_shared<fuzz::BytesFile>(data, size)),
                        {{"checkpoint_metadata.json", Kind::file, size},
                         {"model", Kind::directory, 0},
                         {"model_config.json", Kind::file, size},
                         {"optimizer", Kind::directory, 0}});
    return 0;
}
