"""Helpers of make.py files: the truth about arrays in memory."""
import hashlib, json, os, sys, numpy as np
def rng(name):
    import zlib
    return np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
def f32(name, *s): return rng(name).standard_normal(s).astype(np.float32)
def ent(a, dt=None):
    a = np.ascontiguousarray(a)
    d = dt or str(a.dtype)
    f = a.astype(np.float32) if a.dtype.kind == 'f' else None
    return {"dtype": d, "shape": list(a.shape), "sha256": hashlib.sha256(a.tobytes()).hexdigest(), "nan": int(np.isnan(f).sum()) if f is not None else 0, "inf": int(np.isinf(f).sum()) if f is not None else 0}
def write(d, about, fw, fmt, tensors, world=1, mesh=None, **kw):
    e = {"about": about, "framework": fw, "python": sys.version.split()[0], "numpy": np.__version__, "format": fmt, "world_size": world, "mesh": mesh,
         "tensors": {k: (v if isinstance(v, dict) else ent(v)) for k, v in tensors.items()}, "objects": {}}
    e.update(kw)
    os.makedirs(d, exist_ok=True)
    json.dump(e, open(d + "/expected.json", "w"), indent=1)
