"""What keeping KV costs and what it saves: arithmetic with every assumption a parameter.

Money in US dollars, sizes in bytes or decimal terabytes (1 TB = 10^12 B), prices of tokens in
dollars per million. Defaults are the post's, or DeepSeek's published prices (October 2026,
off-peak); each docstring says which are *reported* and which are *assumed*. All results are
*derived*.
"""

from dataclasses import dataclass

PIB, TB = 2**50, 10**12
HOURS_PER_YEAR = 8766.0  # 365.25 days
DAY = 86_400.0


@dataclass(frozen=True)
class Storage:
    """SSD behind one GPU. 14.4 TB and 10+2 are reported; price, years and factor are assumed."""

    logical_tb: float = 14.4
    data_shards: int = 10
    parity_shards: int = 2
    dollars_per_tb: float = 500.0
    years: float = 5.0
    surroundings: float = 2.0  # servers, network and power, as a factor on the disks alone

    @property
    def overhead(self) -> float:
        """Bytes on disk per byte kept: 1.2 for 10+2. Three copies are 1+2, and cost 3."""
        return (self.data_shards + self.parity_shards) / self.data_shards

    @property
    def physical_tb(self) -> float:
        """Terabytes to buy for the logical ones: erasure coding included."""
        return self.logical_tb * self.overhead

    @property
    def disk_dollars(self) -> float:
        """Paid once per GPU, for the disks alone."""
        return self.physical_tb * self.dollars_per_tb

    @property
    def disk_dollars_per_hour(self) -> float:
        """The disks alone, spread over their years."""
        return self.disk_dollars / (self.years * HOURS_PER_YEAR)

    @property
    def dollars_per_hour(self) -> float:
        """With what surrounds the disks."""
        return self.disk_dollars_per_hour * self.surroundings

    def token_dollars_per_day(self, bytes_per_token: float) -> float:
        """Keeping one token's KV for a day."""
        return self.dollars_per_hour * 24 * bytes_per_token / (self.logical_tb * TB)


def gpus_implied(pool_pib: float, tb_per_gpu: float, overhead: float = 1.0) -> float:
    """GPUs for which a pool was built: 100 PiB (reported) at 14.4 TB of kept data each.

    `overhead` above 1 takes the pool's size as raw disk space, erasure coding included.
    """
    return pool_pib * PIB / overhead / (tb_per_gpu * TB)


def recompute_dollars_per_million(
    node_dollars_per_hour: float, input_tokens_per_second: float, hit_share: float = 0.0
) -> float:
    """Prefill of a million tokens, from what a node takes in. `hit_share` of it was not computed.

    DeepSeek's disclosure of February 2025 (reported: 73,700 tokens/s a node with 56.3 % hits; $16
    per node-hour) gives $0.138.
    """
    computed = input_tokens_per_second * (1 - hit_share)
    return node_dollars_per_hour / 3600 / computed * 1e6


def break_even_reads_per_day(storage_dollars_per_day: float, recompute_per_million: float) -> float:
    """How often a stored token must be read again for its place to pay, per day.

    This marginal test, and not the hit rate as a whole, says whether days 4 to 7 are worth keeping.
    """
    return storage_dollars_per_day / (recompute_per_million / 1e6)


def value_per_day(
    reads_per_day: float, recompute_per_million: float, storage_dollars_per_day: float
) -> float:
    """Dollars a stored token earns in a day: recomputation saved, less its place on disk."""
    return reads_per_day * recompute_per_million / 1e6 - storage_dollars_per_day


def throughput_gain_to_pay(storage_per_hour: float, gpu_per_hour: float) -> float:
    """Share by which reuse must raise a GPU's throughput to pay for its storage."""
    return storage_per_hour / gpu_per_hour


@dataclass(frozen=True)
class TokenPrices:
    """Dollars per million tokens. Defaults: V4.1-Flash, off-peak, reported; peak is twice that."""

    hit: float = 0.003
    miss: float = 0.15
    output: float = 0.60

    def blend(self, hit_rate: float, output_share: float) -> float:
        """Income per million tokens, when `hit_rate` of the input is cached."""
        fed = hit_rate * self.hit + (1 - hit_rate) * self.miss
        return (1 - output_share) * fed + output_share * self.output


OFF_PEAK = TokenPrices()
PEAK = TokenPrices(hit=0.006, miss=0.30, output=1.20)


def income_per_million(tokens_per_day: float, dollars_per_gpu_hour: float, gpus: float) -> float:
    """What a million tokens earn, if a cluster earns so much per GPU-hour at that traffic."""
    return dollars_per_gpu_hour * 24 * gpus / (tokens_per_day / 1e6)


def tokens_per_second_per_gpu(tokens_per_day: float, gpus: float) -> float:
    """All tokens, hits included, over all GPUs."""
    return tokens_per_day / DAY / gpus


def output_share_for(income: float, hit_rate: float, prices: TokenPrices = OFF_PEAK) -> float:
    """Share of output tokens that makes the blended price equal `income` per million tokens.

    Negative where that hit rate alone already earns more, above 1 where nothing earns enough.
    """
    fed = prices.blend(hit_rate, 0.0)
    return (income - fed) / (prices.output - fed)


def hit_rate_for(income: float, output_share: float, prices: TokenPrices = OFF_PEAK) -> float:
    """The hit rate that makes the blended price equal `income` at a given share of output."""
    fed = (income - output_share * prices.output) / (1 - output_share)
    return (prices.miss - fed) / (prices.miss - prices.hit)


def dollars_per_million(gpu_per_hour: float, tokens_per_second: float) -> float:
    """Cost of a million tokens at a GPU's throughput."""
    return gpu_per_hour / 3600 / tokens_per_second * 1e6
