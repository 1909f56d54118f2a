//! Filters that would be filled anew where no node has all of one.

use umbel_core::engine::Refill;

use super::*;

#[test]
fn a_filter_of_a_cluster_is_not_filled_anew() {
    run(async {
        let world = World::new(31).await;
        let engine = world.engine(0);
        for new in
            [everywhere("large", Spec::counting(20_000, 1e-7)), NewFilter::new("small", Spec::bloom(10, 0.1))]
        {
            let filter = engine.create(new).await.unwrap();
            let refused = engine.begin_rebuild(&filter, &Refill::default()).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
            assert!(engine.rebuild_of(&filter).await.unwrap().is_none());
        }
    });
}
