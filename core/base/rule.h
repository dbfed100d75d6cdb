// Ids of the rules that a checkpoint can break. They are stable: docs/cli.md lists them, reports and the
// window show them, scripts match them. Code names a rule by its constant, never by a literal, so a typo does
// not compile.
#pragma once

namespace shardscope::rule {

// Every element of every tensor is stored exactly once.
inline constexpr char coverageGap[] = "coverage.gap";
inline constexpr char coverageOverlap[] = "coverage.overlap";
inline constexpr char coverageBounds[] = "coverage.bounds";
inline constexpr char coverageShrunk[] = "coverage.shrunk";

// The files of the checkpoint.
inline constexpr char fileMissing[] = "file.missing";
inline constexpr char fileTruncated[] = "file.truncated";
inline constexpr char fileDamaged[] = "file.damaged";
inline constexpr char fileUnreferenced[] = "file.unreferenced";
inline constexpr char fileStale[] = "file.stale";
inline constexpr char fileLock[] = "file.lock";
inline constexpr char fileUpload[] = "file.upload";

// Metadata against itself and against the data files.
inline constexpr char metaInconsistent[] = "meta.inconsistent";
inline constexpr char metaDuplicate[] = "meta.duplicate";
inline constexpr char metaEmpty[] = "meta.empty";
inline constexpr char metaAlias[] = "meta.alias";  // a note, never a finding
inline constexpr char rankMissing[] = "rank.missing";
inline constexpr char replicaDiffers[] = "replica.differs";
inline constexpr char layoutFused[] = "layout.fused";
inline constexpr char quantPart[] = "quant.part";

// What a resumed run needs, against what is there.
inline constexpr char stateMissing[] = "state.missing";
inline constexpr char stateDiffers[] = "state.differs";
inline constexpr char saveMixed[] = "save.mixed";
inline constexpr char saveTorn[] = "save.torn";

// Stored values.
inline constexpr char valueNan[] = "value.nan";
inline constexpr char valueInf[] = "value.inf";
inline constexpr char valueZero[] = "value.zero";
inline constexpr char valueUniform[] = "value.uniform";
inline constexpr char valueFill[] = "value.fill";
inline constexpr char integrityCrc[] = "integrity.crc";

// Against another checkpoint (--expect).
inline constexpr char expectMissing[] = "expect.missing";
inline constexpr char expectExtra[] = "expect.extra";
inline constexpr char expectShape[] = "expect.shape";
inline constexpr char expectDtype[] = "expect.dtype";

inline constexpr char securityGlobal[] = "security.global";
inline constexpr char securityPath[] = "security.path";

// Of a conversion, not of a checkpoint: what was written is not what was meant.
inline constexpr char outputVerification[] = "output.verification";

}  // namespace shardscope::rule
