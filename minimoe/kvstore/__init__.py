"""KV reuse: the prefix index, the tiers behind it, the shared store on disk, and trace replay."""
