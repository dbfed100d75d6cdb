// numpy dtypes, arrays and scalars as the values of a pickle hold them. Source: numpy/_core/src/multiarray
// (array_reduce, array_setstate, arraydescr_reduce) and numpy/_core/numeric.py (_frombuffer).
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "model/dtype.h"
#include "model/region.h"
#include "model/value.h"

namespace shardscope {

struct NumpyArray {
    DType dtype = DType::float32;
    bool bigEndian = false;
    Dims shape;
    bool columnMajor = false;
    NodeId raw = kNoNode;  // bytes or bytearray, row-major unless columnMajor
};

// Whether the node is the call that makes an array.
bool isNumpyArray(const ValueGraph& graph, NodeId node);
// Errors: damaged; unsupported for arrays of objects, records, texts and other dtypes without a counterpart.
Result<NumpyArray> asNumpyArray(const ValueGraph& graph, NodeId node);

struct NumpyDType {
    DType dtype = DType::float32;
    bool bigEndian = false;
};
// numpy.dtype("f4", ...). Errors: damaged, unsupported.
Result<NumpyDType> asNumpyDType(const ValueGraph& graph, NodeId node);

// Whether the node is the call of numpy.core.multiarray.scalar.
bool isNumpyScalar(const ValueGraph& graph, NodeId node);
// A numpy scalar; `raw` is the node of its bytes. asNumpyScalar() is empty for a dtype without a counterpart.
struct NumpyScalar {
    NumpyDType dtype;
    NodeId raw = kNoNode;
};
std::optional<NumpyScalar> asNumpyScalar(const ValueGraph& graph, NodeId node);

}  // namespace shardscope
