raise RuntimeError("detection must not import torch")
