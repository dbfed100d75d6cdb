#include "storage/object_place.h"

namespace shardscope {
namespace {

Error notHere(const ObjectPlace& place) {
    return makeError(ErrorCode::impossible, "nothing is written to this kind of place")
        .inFile(place.root())
        .withHint("write to a directory or to a bucket (s3://, gs://)");
}

}  // namespace

Result<std::vector<ObjectState>> ObjectPlace::unfinished(const std::string&) {
    return std::vector<ObjectState>();
}
Status ObjectPlace::put(const std::string&, std::span<const std::byte>, const Put&) {
    return notHere(*this);
}
Status ObjectPlace::remove(const std::string&) {
    return notHere(*this);
}
Result<std::string> ObjectPlace::startUpload(const std::string&, const Put&) {
    return notHere(*this);
}
Result<ObjectPlace::Part> ObjectPlace::putPart(const std::string&, const std::string&, unsigned,
                                               std::span<const std::byte>, uint32_t) {
    return notHere(*this);
}
Result<std::vector<ObjectPlace::Part>> ObjectPlace::parts(const std::string&, const std::string&) {
    return notHere(*this);
}
Status ObjectPlace::complete(const std::string&, const std::string&, std::span<const Part>, const Put&) {
    return notHere(*this);
}
Status ObjectPlace::abandon(const std::string&, const std::string&) {
    return notHere(*this);
}

}  // namespace shardscope
