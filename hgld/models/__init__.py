"""Models that embed images: a backbone of timm, pooling, and perhaps a linear projection."""
