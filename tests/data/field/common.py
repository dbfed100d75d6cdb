"""Helpers of the make.py files: python with torch 2.15, numpy, safetensors.
SHARDSCOPE names the program; make.py writes ckpt/ and expected.json beside itself."""
import hashlib, json, os, shutil, struct, sys, warnings, multiprocessing as mp
warnings.filterwarnings('ignore')
def here(f): return os.path.dirname(os.path.abspath(f))
def fresh(p): shutil.rmtree(p, ignore_errors=True); os.makedirs(p); return p
def sha(b): return hashlib.sha256(b).hexdigest()
def raw(t):
    import torch
    t = t.detach().cpu().contiguous()
    return t.flatten().view(torch.uint8).numpy().tobytes() if t.numel() else b''
def entry(t): return {'dtype': str(t.dtype).replace('torch.', ''), 'shape': list(t.shape), 'sha256': sha(raw(t))}
NAMES = {'F32': 'float32', 'BF16': 'bfloat16', 'U8': 'uint8'}
def st_entry(v): return {'dtype': NAMES[v[0]], 'shape': list(v[1]), 'sha256': sha(v[2])}
def save_st(path, tensors, meta=None):
    """tensors: name -> (dtype, shape, bytes)"""
    h, off = {}, 0
    if meta: h['__metadata__'] = meta
    for k, (d, s, b) in tensors.items():
        h[k] = {'dtype': d, 'shape': list(s), 'data_offsets': [off, off + len(b)]}; off += len(b)
    j = json.dumps(h).encode(); j += b' ' * (-len(j) % 8)
    open(path, 'wb').write(struct.pack('<Q', len(j)) + j + b''.join(b for _, _, b in tensors.values()))
def expected(d, about, fmt, tensors, **more):
    json.dump({'about': about, 'format': fmt, **more, 'tensors': tensors}, open(os.path.join(d, 'expected.json'), 'w'), indent=1)
def _go(fn, rank, n, store, args):
    import torch, torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method='file://' + store, rank=rank, world_size=n)
    try: fn(rank, n, *args)
    finally: dist.destroy_process_group()
def spawn(fn, n, *args):
    store = f'/tmp/case-store-{os.getpid()}-{fn.__name__}'
    if os.path.exists(store): os.remove(store)
    c = mp.get_context('fork'); ps = [c.Process(target=_go, args=(fn, r, n, store, args)) for r in range(n)]
    [p.start() for p in ps]; [p.join(120) for p in ps]
    assert all(p.exitcode == 0 for p in ps)
