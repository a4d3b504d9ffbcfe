//! Edge coloring: the assignment of tasks to rounds so that no two tasks of a round have a common
//! resource.
//!
//! Without trunks, a task is an edge from an output to an input. The graph is bipartite, and its
//! edges need exactly as many colors as its highest degree (König): a full directed mesh of N hosts
//! takes N - 1 rounds. With trunks the tasks are hyperedges, and the best of several greedy
//! colorings is used.

/// Returns the round of every task. A task is the list of its resources, all below `resources`.
pub(super) fn rounds(tasks: &[&[usize]], resources: usize) -> Vec<u32> {
    let exact = bipartite(tasks, resources);
    if tasks.iter().all(|task| task.len() <= 2) {
        return exact;
    }
    let degrees = degrees(tasks, resources);
    let heaviest = |task: usize| tasks[task].iter().map(|one| degrees[*one]).max().unwrap_or(0);
    let mut by_degree: Vec<usize> = (0..tasks.len()).collect();
    by_degree.sort_by_key(|task| (std::cmp::Reverse(heaviest(*task)), exact[*task]));
    let mut by_round: Vec<usize> = (0..tasks.len()).collect();
    by_round.sort_by_key(|task| exact[*task]);
    let colorings = [by_degree, by_round].map(|order| greedy(tasks, &order, resources));
    let [first, second] = colorings;
    if count(&second) < count(&first) { second } else { first }
}

/// Returns the number of rounds.
pub(super) fn count(rounds: &[u32]) -> u32 {
    rounds.iter().max().map_or(0, |last| last + 1)
}

fn degrees(tasks: &[&[usize]], resources: usize) -> Vec<usize> {
    let mut degrees = vec![0; resources];
    tasks.iter().flat_map(|task| task.iter()).for_each(|one| degrees[*one] += 1);
    degrees
}

/// First fit in the given order.
fn greedy(tasks: &[&[usize]], order: &[usize], resources: usize) -> Vec<u32> {
    let mut used: Vec<Vec<bool>> = vec![Vec::new(); resources];
    let mut colors = vec![0; tasks.len()];
    for task in order {
        let free = |color: &usize| {
            tasks[*task].iter().all(|one| !used[*one].get(*color).copied().unwrap_or(false))
        };
        let color = (0..).find(free).unwrap_or(0);
        for one in tasks[*task] {
            let slots = &mut used[*one];
            slots.resize(slots.len().max(color + 1), false);
            slots[color] = true;
        }
        colors[*task] = color as u32;
    }
    colors
}

const FREE: usize = usize::MAX;

/// Colors the first two resources of every task by alternating paths.
fn bipartite(tasks: &[&[usize]], resources: usize) -> Vec<u32> {
    let ends: Vec<Option<(usize, usize)>> = tasks
        .iter()
        .map(|task| match task {
            [from, to, ..] => Some((*from, *to)),
            _ => None,
        })
        .collect();
    let pairs: Vec<&[usize]> = tasks.iter().map(|task| &task[..task.len().min(2)]).collect();
    let most = degrees(&pairs, resources).into_iter().max().unwrap_or(0);
    // The task of each color at each resource.
    let mut at = vec![vec![FREE; most]; resources];
    let free = |slots: &[usize]| slots.iter().position(|task| *task == FREE).unwrap_or(0);
    for (task, end) in ends.iter().enumerate() {
        let Some((from, to)) = *end else { continue };
        let (here, there) = (free(&at[from]), free(&at[to]));
        if at[to][here] != FREE {
            // The path of the colors `here` and `there` from `to` cannot end at `from`, because the
            // graph is bipartite and `from` has no task of the color `here`.
            swap_path(&mut at, &ends, to, here, there);
        }
        at[from][here] = task;
        at[to][here] = task;
    }
    let mut colors = vec![0; tasks.len()];
    for slots in &at {
        for (color, task) in slots.iter().enumerate().filter(|(_, task)| **task != FREE) {
            colors[*task] = color as u32;
        }
    }
    colors
}

/// Swaps the two colors on the path that begins at `start` with a task of color `first`.
fn swap_path(
    at: &mut [Vec<usize>],
    ends: &[Option<(usize, usize)>],
    start: usize,
    first: usize,
    second: usize,
) {
    let mut path = Vec::new();
    let (mut resource, mut color, mut other) = (start, first, second);
    while at[resource][color] != FREE {
        let task = at[resource][color];
        let Some((from, to)) = ends[task] else { break };
        path.push((task, color, other));
        resource = if resource == from { to } else { from };
        std::mem::swap(&mut color, &mut other);
    }
    for (task, color, _) in &path {
        if let Some((from, to)) = ends[*task] {
            at[from][*color] = FREE;
            at[to][*color] = FREE;
        }
    }
    for (task, _, color) in &path {
        if let Some((from, to)) = ends[*task] {
            at[from][*color] = *task;
            at[to][*color] = *task;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns true if no two tasks of a round share a resource.
    fn proper(tasks: &[&[usize]], rounds: &[u32]) -> bool {
        let mut seen = std::collections::HashSet::new();
        tasks
            .iter()
            .zip(rounds)
            .all(|(task, round)| task.iter().all(|one| seen.insert((*one, *round))))
    }

    #[test]
    fn a_full_mesh_takes_one_round_less_than_it_has_hosts() {
        for hosts in [2, 3, 4, 7, 24] {
            let pairs: Vec<[usize; 2]> = (0..hosts)
                .flat_map(|from| (0..hosts).map(move |to| (from, to)))
                .filter(|(from, to)| from != to)
                .map(|(from, to)| [from, hosts + to])
                .collect();
            let tasks: Vec<&[usize]> = pairs.iter().map(|pair| pair.as_slice()).collect();
            let rounds = rounds(&tasks, 2 * hosts);
            assert!(proper(&tasks, &rounds));
            assert_eq!(count(&rounds) as usize, hosts - 1, "{hosts} hosts");
        }
    }

    proptest! {
        #[test]
        fn a_bipartite_graph_takes_as_many_rounds_as_its_highest_degree(
            pairs in proptest::collection::vec((0_usize..9, 9_usize..18), 0..60)
        ) {
            let pairs: Vec<[usize; 2]> = pairs.into_iter().map(|(from, to)| [from, to]).collect();
            let tasks: Vec<&[usize]> = pairs.iter().map(|pair| pair.as_slice()).collect();
            let rounds = rounds(&tasks, 18);
            prop_assert!(proper(&tasks, &rounds));
            let most = degrees(&tasks, 18).into_iter().max().unwrap_or(0);
            prop_assert_eq!(count(&rounds) as usize, most);
        }

        #[test]
        fn trunks_are_resources_too(
            triples in proptest::collection::vec((0_usize..6, 6_usize..12, 12_usize..15), 0..60)
        ) {
            let triples: Vec<[usize; 3]> = triples.into_iter().map(|(a, b, c)| [a, b, c]).collect();
            let tasks: Vec<&[usize]> = triples.iter().map(|one| one.as_slice()).collect();
            prop_assert!(proper(&tasks, &rounds(&tasks, 15)));
        }
    }
}
