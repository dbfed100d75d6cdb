#include "validate/rules.h"

#include <algorithm>

#include "base/rule.h"

namespace shardscope {

namespace {

using enum ValidateLevel;

constexpr RuleInfo kRules[] = {
    {rule::coverageGap, metadata, "Elements that no chunk holds",
     "Some part of the tensor is stored nowhere. Loading it leaves those elements at whatever they were "
     "before, or fails.",
     "Look whether a rank's file or metadata is missing; restore it, or save again. Where the values do not "
     "matter, "
     "convert with the gaps filled (--fill-gaps nan or zero)."},
    {rule::coverageOverlap, metadata, "Different chunks that claim the same elements",
     "Two ranks own overlapping parts that are not replicas of each other, so what a load gives depends on "
     "its "
     "order.",
     "Find which save wrote the wrong placement; files of two saves may be mixed in one directory."},
    {rule::coverageBounds, metadata, "A chunk that leaves its tensor",
     "The metadata places a chunk outside the shape of its tensor. Such a chunk is never read.",
     "The metadata is damaged or was written by a faulty tool; save again."},
    {rule::coverageShrunk, metadata, "A tensor that may have lost its last shards",
     "The shape is only known from the chunks that are there, and other tensors of the same grid say that "
     "more belong to it.",
     "Look for missing rank files; compare with the model's configuration or a good checkpoint (--expect)."},
    {rule::fileMissing, files, "A file that the checkpoint needs is missing",
     "The metadata names it, the framework always writes it, or the earlier steps of the run have it: its "
     "chunks are lost, or a run cannot resume.",
     "Copy the file from where it was saved; a partial upload or a failed rank is the usual cause."},
    {rule::fileTruncated, files, "A file ends before its data does",
     "The file ends before the bytes of some chunks do: the write or the copy did not finish.",
     "Copy the file again and compare sizes; if the source is as short, use an earlier checkpoint."},
    {rule::fileDamaged, metadata, "A file of state that cannot be read",
     "It is empty, holds only zero bytes, or ends too early: the save or the copy did not finish, or a power "
     "loss took what was not yet on the disk.",
     "Copy the file again, or resume from an earlier step."},
    {rule::fileUnreferenced, files, "A file that nothing refers to",
     "It belongs to no tensor of this checkpoint. Harmless, but it costs space and may mean that metadata is "
     "missing.",
     "Check whether it belongs to another save, then remove it."},
    {rule::fileStale, files, "A file left by another save",
     "An earlier save with more ranks used the same directory. Readers that go by file names may pick it up.",
     "Remove it, and save into an empty directory."},
    {rule::fileLock, files, "Traces of a save that died",
     "A save did not finish here. Its data files may have replaced older ones before the metadata was "
     "written.",
     "Validate the values, or go back to an earlier checkpoint."},
    {rule::fileUpload, files, "An upload that did not end",
     "A file of this checkpoint was being uploaded to the bucket. No reader sees it, and it costs space.",
     "If no job is at work, save or copy the file again; then end the upload: `shardscope cleanup`."},
    {rule::metaInconsistent, files, "Metadata and data file disagree",
     "Name, dtype, shape or size in a data file differ from what the metadata says.",
     "Files of two saves may be mixed; restore the set that belongs together."},
    {rule::metaDuplicate, metadata, "The same name twice",
     "Two entries have one name; most loaders silently keep the last.",
     "Rename one of them while converting (--rename)."},
    {rule::metaEmpty, metadata, "A checkpoint without tensors",
     "Nothing can be loaded or resumed from it: a directory of another format, or a file of settings only.",
     "Name the directory or file that holds the model; 'shardscope formats' lists what can be read."},
    {rule::rankMissing, metadata, "A rank that wrote nothing",
     "All other ranks hold a part, this one does not, although the mesh says it should.",
     "Look whether its file was lost."},
    {rule::replicaDiffers, values, "Replicas that are not equal",
     "Ranks that should hold the same values do not: training has diverged between them, or one is "
     "damaged.",
     "Resume from an earlier checkpoint, or convert from the ranks that you trust."},
    {rule::layoutFused, metadata, "A fused projection that was sharded rank by rank",
     "Each rank's shard holds parts of several projections; laying them end to end gives a wrong order.",
     "Convert with a recipe that splits and joins the parts (fused-qkv)."},
    {rule::quantPart, metadata, "A quantized weight that is not whole",
     "A weight is stored as several tensors, such as values of few bits and their scales, and one of them is "
     "missing or does not fit the others. What is left of it means nothing.",
     "Restore the tensor that is missing, or quantize the model again."},
    {rule::stateMissing, metadata, "State that resuming needs is missing",
     "The weights load, but what a run resumes from is incomplete: optimizer state, or weights themselves.",
     "Resume from an earlier step; to load the weights alone it may be enough."},
    {rule::stateDiffers, metadata, "State that does not fit its parameter",
     "A moment has another shape than its parameter, or states of one parameter have different shapes. "
     "Loading them gives values of other parameters, or fails.",
     "What was saved is one rank's part or mixed up; resume from a checkpoint whose optimizer was saved "
     "sharded."},
    {rule::saveMixed, metadata, "Files of two saves in one step",
     "The file that the framework writes last is older than weights or optimizer: a second save into the "
     "same directory died on the way. Or a file is that of an earlier step, while others went on.",
     "Resume from the step before, or compare the step number inside with the name."},
    {rule::saveTorn, files, "A file that ends in zero bytes, unlike those of earlier steps",
     "Sizes and times survive a power loss that takes the data: what was not on the disk yet reads as zeros.",
     "Compare the values with an earlier step, and resume from that one."},
    {rule::valueNan, values, "NaN values", "Training that resumes from this tensor spreads the NaN.",
     "Go back to a checkpoint before they appeared."},
    {rule::valueInf, values, "Infinite values",
     "Some values overflowed; masks and bounds may hold infinities on purpose.",
     "Decide by the tensor's meaning; suppress the finding with a reason where it is intended."},
    {rule::valueZero, values, "Nothing but zeros",
     "The whole tensor or a whole block is zero. A fresh bias is; a trained weight usually is not.",
     "Compare with an earlier checkpoint."},
    {rule::valueUniform, values, "One value everywhere",
     "All elements are equal. Fresh norms are; trained weights usually are not.",
     "Compare with an earlier checkpoint."},
    {rule::valueFill, values, "A fill that nothing wrote over",
     "The source did not hold these elements, and what was put in their place is still there. Known from the "
     "record of a conversion with --fill-gaps, or from the gaps of the checkpoint to compare with "
     "(--expect); "
     "NaN anywhere else is value.nan.",
     "Treat it as a gap: find the shard that was not loaded."},
    {rule::integrityCrc, values, "A stored checksum does not fit",
     "The bytes changed after they were written.", "Copy the file again, or use another copy."},
    {rule::expectMissing, metadata, "A tensor that was expected is missing",
     "The checkpoint to compare with has it, this one does not.",
     "Check names (rename rules) and whether the save left it out."},
    {rule::expectExtra, metadata, "A tensor that was not expected",
     "This checkpoint has it, the one to compare with does not.", "Check names and versions of the model."},
    {rule::expectShape, metadata, "Another shape than expected", "Name and dtype fit, the shape does not.",
     "Padding of the vocabulary or another model size is the usual cause."},
    {rule::expectDtype, metadata, "Another dtype than expected", "Name and shape fit, the dtype does not.",
     "Convert with --dtype when the change is wanted."},
    {rule::securityGlobal, metadata, "A pickle names something beyond plain data",
     "Loading this file with a plain unpickler would import or call it. Nothing was imported or called here.",
     "Do not load it with weights_only=False unless you know where it comes from; convert it to "
     "safetensors."},
    {rule::securityPath, metadata, "A path that leaves the checkpoint",
     "The metadata points outside its directory. Such a file is never opened.",
     "Do not trust this checkpoint without knowing who made it."},
};

}  // namespace

std::span<const RuleInfo> validationRules() {
    return kRules;
}

const RuleInfo* findRule(std::string_view id) {
    const auto* it =
        std::find_if(std::begin(kRules), std::end(kRules), [&](const RuleInfo& r) { return r.id == id; });
    return it == std::end(kRules) ? nullptr : it;
}

}  // namespace shardscope
