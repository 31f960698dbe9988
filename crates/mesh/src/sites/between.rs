//! The path between two hosts as the sites file describes it.

use lfn_base::units::BitRate;

use super::Sites;

impl Sites {
    /// Returns the capacity of the path between two hosts: the smallest of the rates of both hosts, of the circuits between their
    /// sites and of the bottlenecks that the path passes. `None` if none of them is known.
    pub fn capacity_between(&self, from: &str, to: &str) -> Option<BitRate> {
        let (from, to) = (self.host(from)?, self.host(to)?);
        let circuits = self.circuits.iter().filter(|circuit| {
            let [first, second] = &circuit.between;
            (*first == from.site && *second == to.site) || (*first == to.site && *second == from.site)
        });
        let bottlenecks = self.bottlenecks.iter().filter(|bottleneck| {
            let at = |site: &String| bottleneck.sites.contains(site);
            let is_pair = |first: &String, second: &String| {
                (*first == from.site || *first == from.name) && (*second == to.site || *second == to.name)
            };
            let by_site = from.site != to.site && (at(&from.site) || at(&to.site));
            by_site || bottleneck.pairs.iter().any(|[first, second]| is_pair(first, second) || is_pair(second, first))
        });
        let rates = [from.rate, to.rate].into_iter().flatten();
        let circuits = circuits.filter_map(|circuit| circuit.capacity);
        rates.chain(circuits).chain(bottlenecks.map(|bottleneck| bottleneck.capacity)).min()
    }
}
