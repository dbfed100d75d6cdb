// The front of this room: files of buckets, of the hub and of web servers as a FileSystem. Only read; the
// program's environment and the files of the stores' own tools say with whose rights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/file_system.h"
#include "storage/object_place.h"

namespace shardscope {

// Files below "s3://bucket", "gs://bucket", "hf://org/model", "https://host"; `path` may be any path in the
// place. Nothing is asked for yet. Errors: usage (no bucket, a URL with a password in it).
struct Place {
    std::shared_ptr<FileSystem> files;
    std::string path;  // as it is shown and opened: without a slash at its end, and without what a URL keeps
                       // secret (the signature after '?')
};
Result<Place> placeOf(const std::string& path);

// The place alone. Private to this room and to its tests.
Result<std::shared_ptr<ObjectPlace>> s3Place(const std::string& bucket);
Result<std::shared_ptr<ObjectPlace>> googlePlace(const std::string& bucket);
Result<std::shared_ptr<ObjectPlace>> hubPlace(const std::string& root);
// `query`: what follows '?' in the one URL that it is for.
Result<std::shared_ptr<ObjectPlace>> webPlace(const std::string& root, const std::string& query);

// All objects whose keys begin with `prefix`, in byte order. Errors: those of the place; remote, for a
// listing that cannot be.
Result<std::vector<ObjectState>> listAll(ObjectPlace& place, const std::string& prefix);

// Any of them as files. A directory is what keys share up to a slash; its whole tree comes with one listing
// where that is not too long. What a listing says is kept: a new FileSystem sees what is new.
std::shared_ptr<FileSystem> objectFileSystem(std::shared_ptr<ObjectPlace> place);

}  // namespace shardscope
