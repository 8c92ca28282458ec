"""HEAT: energies of prior densities, each corrected by a learnt residual energy, and composed.

From chapter 5 of Elias Ramzi's thesis, Robust image retrieval with deep learning (CNAM, 2024), and Lafon et al.,
Hybrid Energy Based Model in the Feature Space for Out-of-Distribution Detection, ICML 2023. Section, equation and
table numbers in this package are those of the thesis; "the published code" is https://github.com/MarcLafon/heatood.

==================  =======================================================================================
``energies``        priors, which are Gaussians of the classes and the energy of logits (Sec. 5.2.2), and the
                    residual energy, a multi-layer perceptron
``settings``        hyper-parameters of training, and the presets of the thesis and of the published code
``training``        stochastic gradient Langevin dynamics (Eq. 5.4), the losses (Eqs. 5.3, 5.5, 5.6), and training
                    the residual energy of one prior
``composition``     one energy from several (Eq. 5.7)
==================  =======================================================================================

The score itself is :class:`hgld.rejection.scores.heat.Heat`.
"""
